"""The package as users get it: what stands at the top, and a wheel away from the checkout."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from thorough import slow

import kineticsim_env as ks
from kineticsim_env import cli
from kineticsim_env.runtime import build

ROOT = Path(__file__).parent.parent
PUBLIC = "__init__ __main__ cli config errors scorecards simulator traders".split()
ROOMS = (  # a file imports from its own line and from those above it
    "errors",
    "agents config data runtime traders",
    "engines tasks wrappers",
    "policies simulator tapes",
    "zoo",
    "statistics",
    "counterfactuals sweeps",
    "envs render",
    "adapters evaluation jax training",
    "play plots",
    "calibration flow scorecards",
    "commands",
    "cli",
)
RUN = """
import sys

import gymnasium
import kineticsim_env as ks
from kineticsim_env.runtime import build

engine = sys.argv[1]
print(ks.__file__)
print(build.cuda_dir())
simulator = ks.Simulator(ks.MarketConfig(), 1, engine=engine)
price = simulator.run(20, ("last_price",))["last_price"]
envs = gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=2, engine=engine, horizon=4, bank_size=2)
envs.reset(seed=0)
rewards = envs.step(envs.action_space.sample())[1]
print(tuple(price.shape), int(price.min()) > 0, rewards.shape, flush=True)
"""
COMMANDS = {  # each with the least that it does something with
    "play": ["--terminal", "--horizon", "20"],
    "doctor": [],
    "simulate": ["--markets", "2", "--auctions", "3", "--save", "run.npz", "--plot", "run.png"],
    "evaluate": ["no trade", "--episodes", "2", "--against", "fixed spread", "--json", "figures.json"],
    "impact": ["--markets", "2", "--blocks", "2", "--warmup", "0", "--after", "2", "--plot", "impact.png"],
    "scorecard": ["--markets", "2", "--intervals", "200", "--preset", "trading", "--plot", "card.png"],
    "sweep": ["sweep.toml"],
    "calibrate": ["calibrate.toml", "--output", "fit.json", "--plot-predicted", "seen.png"],
    "fit": ["orders.csv", "--unit", "ns", "--output", "flow.json", "--plot", "flow.png", "--markets", "1"],
    "bench": ["--quick"],
}
FILES = {
    "sweep": 'design = "random"\npoints = 3\nfolder = "results"',
    "calibrate": "simulations = 100\nheld_out = 20\n[target]\nvolatility = 1e6",
}
SPACE = "[space]\nnoise_spread = { low = 3, high = 12 }"
WRITTEN = "run.npz run.png figures.json impact.png card.png results fit.json seen.png flow.json flow.png".split()
RUN_COMMANDS = """
import contextlib, json, os, pty
from importlib import metadata

(script,) = metadata.entry_points(group="console_scripts", name="kineticsim")
main, commands = script.load(), json.loads(sys.argv[2])
process, terminal = pty.fork()
if not process:
    sys.exit(main(["play", *commands.pop("play")]))
with contextlib.suppress(OSError):  # when the other end is closed
    while os.read(terminal, 65536):
        os.write(terminal, b"q")
codes = {"play": os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}
codes |= {name: main([name, *words]) for name, words in commands.items() if name != "play"}
print(json.dumps(codes))
"""


def write_orders(path, events=2500):
    """Write order events of a simulated market, as a user's file has them."""
    found = ks.OrderFlow.preset("btcusd").simulate(events, seed=1)
    columns = {name: getattr(found, name) for name in ("time", "order", "kind", "side", "price", "size")}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")


def tracked(*folders):
    """Return the tracked files below folders, as paths from the checkout's root."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:
        pytest.skip("this is no git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_what_stands_at_the_top_is_what_users_import():
    assert sorted(path.stem for path in (ROOT / "kineticsim_env").glob("*.py")) == sorted(PUBLIC)


def test_imports_point_one_way():
    level = {room: number for number, line in enumerate(ROOMS) for room in line.split()}
    package, wrong = ROOT / "kineticsim_env", []
    for path in package.rglob("*.py"):
        own = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or own in ("__init__", "__main__"):
                continue
            assert not node.level, f"{path}: imports are written out"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            rooms = {name.split(".")[1] for name in names if name.startswith("kineticsim_env.")} & set(level)
            wrong += [f"{path.relative_to(ROOT)} imports {room}" for room in rooms if level[room] > level[own]]
    assert not wrong


def imports_within():
    """Return what each module of the package imports of it, by names without the package's own."""
    package = ROOT / "kineticsim_env"
    paths = {".".join(path.relative_to(package).with_suffix("").parts): path for path in package.rglob("*.py")}
    found = {}
    for name, path in paths.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        whole = {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
        ours = {full.removeprefix("kineticsim_env.") for full in whole if full.startswith("kineticsim_env.")}
        known = {*paths, *(module.removesuffix(".__init__") for module in paths)}
        found[name.removesuffix(".__init__")] = {full if full in known else full.rpartition(".")[0] for full in ours}
    return found


def test_the_numpy_engine_stands_alone():
    """Neither does it import what other engines compute with, nor do they, or what stands on them, import from it.

    `engine.py` is the frame that all engines have in common; users' functions are run by the numbers of `agents`.
    """
    graph, room = imports_within(), "engines.numpy"
    reached, new = set(), {f"{room}.market", f"{room}.tasks"}
    while new:
        reached |= new
        new = {other for name in new for other in graph[name]} - reached
    own = {name for name in graph if name.startswith(f"{room}.")}
    assert reached - own == {"errors", "agents.numbers"}
    assert own - reached == {f"{room}.engine"}
    others = {name for name in graph if name not in own and any(each.startswith(room) for each in graph[name])}
    assert others == {"engines"}  # which makes engines by their names
    assert graph[f"{room}.engine"] - own - {room} == {
        "config", "engines.agents", "engines.base", "engines.parameters", "runtime.calls", "runtime.layout",
    }  # fmt: skip


def test_private_names_of_torch_stand_in_one_file():
    """A name with an underscore, of `torch` or of what is in it; not of our own objects, and no `__version__`."""
    private = re.compile(r"\btorch(?:\.\w+)*\._(?!_)\w+")
    found = {
        path.relative_to(ROOT).as_posix(): names
        for folder in ("kineticsim_env", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if (names := private.findall(path.read_text()))
    }
    assert len(found.pop("kineticsim_env/runtime/private_torch.py")) >= 2
    assert not found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built from a copy of the tracked files, so that the checkout stays as it is."""
    pytest.importorskip("setuptools", minversion="77")  # as pyproject.toml wants to build it
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in tracked("kineticsim_env", "cuda", "scripts", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_its_sources_and_nothing_else(wheel):
    """The engines' sources, to the byte, and not those of the baselines, which only a checkout measures."""
    archive = zipfile.ZipFile(wheel)
    held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    sources = [name for name in tracked("cuda") if not name.startswith("cuda/baselines/")]
    names = {name.replace("cuda/", "kineticsim_env/_cuda/", 1): name for name in sources}
    names |= {name: name for name in tracked("kineticsim_env")}
    assert held == {name: (ROOT / path).read_bytes() for name, path in names.items()}
    assert not [name for name in held if name.endswith(("_page.py", "_text.py"))]  # pages are written in scripts/


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An empty environment with the wheel, installed by pip: sees the present one's packages, not the checkout.

    Its Python, with what it is started in: `-I`, so that neither PYTHONPATH nor the working folder is looked into.
    """
    folder = tmp_path_factory.mktemp("installed")
    ours = any(metadata.distributions(name="pip"))
    if not ours and importlib.util.find_spec("ensurepip") is None:
        pytest.skip("no pip")
    venv.create(folder / "venv", with_pip=not ours)
    python = folder / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python)] if ours else [str(python), "-m", "pip"]
    command += ["install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", str(wheel)]
    subprocess.run(command, cwd=folder, check=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    seen = [path for path in sys.path if path.endswith("-packages") and not (Path(path) / "kineticsim_env").exists()]
    (site / "seen.pth").write_text("\n".join(seen) + "\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # ninja is there
    return [str(python), "-I", "-c"], {**os.environ, "PATH": path}


ENGINE = "numpy" if build.cpu_unavailable() else "cpu"


@slow
def test_the_wheel_and_its_commands_work_in_an_environment_without_the_checkout(installed, tmp_path):
    """In one process; `play` in a pseudo-terminal, where `q` ends it; `bench` says in one line where it is now."""
    python, environment = installed
    extras = all(importlib.util.find_spec(name) for name in ("matplotlib", "pandas", "pyarrow", "sbi"))
    (commands,) = (action.choices for action in cli._parser()._actions if isinstance(action.choices, dict))
    assert set(COMMANDS) == set(commands)
    for name, text in FILES.items():
        (tmp_path / f"{name}.toml").write_text(f'intervals = 10\nengine = "{ENGINE}"\n{text}\n{SPACE}\n')
    environment |= {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    write_orders(tmp_path / "orders.csv")
    command = [*python, RUN + RUN_COMMANDS * extras, ENGINE, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file, sources, figures, *others = done.stdout.splitlines()
    site = Path(python[0]).parents[1]
    assert Path(file).is_relative_to(site) and Path(sources).is_relative_to(site)
    assert figures == "(1, 20) True (2,)"
    if not extras:
        pytest.skip("commands need matplotlib, pandas, pyarrow and sbi")
    assert json.loads(others[-1]) == dict.fromkeys(COMMANDS, 0) | {"bench": 2}, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said == "error: bench: this is a script of a checkout now: python -m scripts.benchmarks --quick"
    assert all((tmp_path / name).exists() for name in WRITTEN)
