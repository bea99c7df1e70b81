"""The package as users get it: what an import loads, what stands at the top, and a wheel away from the checkout."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from kineticsim_env.runtime import build

ROOT = Path(__file__).parent.parent
PUBLIC = "__init__ __main__ cli config errors scorecards simulator traders".split()
ROOMS = (  # a file imports from its own line and from those above it
    "errors",
    "agents config runtime traders",
    "engines tasks wrappers",
    "policies simulator tapes",
    "statistics",
    "counterfactuals sweeps",
    "envs render",
    "adapters evaluation",
    "play plots",
    "calibration scorecards",
    "benchmarks commands",
    "cli",
)
NOT_LOADED = """
import sys
import kineticsim_env
unwanted = "examples", "kineticsim_env.benchmarks", "kineticsim_env.adapters", "kineticsim_env.play"
unwanted += "kineticsim_env.cli", "kineticsim_env.commands", "kineticsim_env.plots"
unwanted += "kineticsim_env.render.canvas", "kineticsim_env.render.picture"
unwanted += "matplotlib", "pygame", "jax", "torch.utils.cpp_extension", "scripts"
print([name for name in sys.modules if name in unwanted or name.startswith(tuple(part + "." for part in unwanted))])
"""
RUN = """
import sys
from importlib import metadata
from pathlib import Path

import gymnasium
import kineticsim_env as ks
from kineticsim_env.runtime import build

engine = sys.argv[1]
print(ks.__file__)
print(build.cuda_dir())
print(build.source_hash())
simulator = ks.Simulator(ks.MarketConfig(), 1, engine=engine)
price = simulator.run(20, ("last_price",))["last_price"]
envs = gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=2, engine=engine, horizon=4, bank_size=2)
envs.reset(seed=0)
rewards = envs.step(envs.action_space.sample())[1]
print(tuple(price.shape), int(price.min()) > 0, rewards.shape)
(command,) = metadata.entry_points(group="console_scripts", name="kineticsim")
command.load()(["simulate", "--markets", "2", "--auctions", "3", "--engine", engine])
"""


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


def test_importing_the_package_loads_no_study_and_no_picture():
    done = subprocess.run([sys.executable, "-c", NOT_LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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


def test_the_wheel_holds_the_package_and_all_sources_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {name.replace("cuda/", "kineticsim_env/_cuda/", 1) for name in tracked("cuda")}
    assert names == sources | set(tracked("kineticsim_env"))
    assert not [name for name in names if name.endswith(("_page.py", "_text.py"))]  # pages are written in scripts/


def test_the_wheel_runs_in_an_environment_without_the_checkout(wheel, tmp_path):
    """Installed by pip into an empty environment, which sees the present one's packages, but not the checkout."""
    ours = any(metadata.distributions(name="pip"))
    if not ours and importlib.util.find_spec("ensurepip") is None:
        pytest.skip("no pip")
    venv.create(tmp_path / "venv", with_pip=not ours)
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python)] if ours else [str(python), "-m", "pip"]
    command += ["install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", str(wheel)]
    subprocess.run(command, cwd=tmp_path, check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    seen = [path for path in sys.path if path.endswith("-packages") and not (Path(path) / "kineticsim_env").exists()]
    (site / "seen.pth").write_text("\n".join(seen) + "\n")
    engine = "numpy" if build.cpu_unavailable() else "cpu"
    command = [str(python), "-I", "-c", RUN, engine]  # -I: neither PYTHONPATH nor this folder is looked into
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # ninja is there
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file, sources, digest, figures, *summary = done.stdout.splitlines()
    assert Path(file).is_relative_to(site) and Path(sources).is_relative_to(site)
    assert digest == build.source_hash()
    assert figures == "(1, 20) True (2,)"
    assert summary[0].startswith("2 markets, 3 auctions each")
