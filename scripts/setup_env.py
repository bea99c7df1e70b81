"""Create .venv and install what a make target needs. The Makefile calls it; it needs nothing but Python itself.

If the Python that runs it has a suitable torch, .venv sees that Python's packages and only what is missing is
installed, so nothing is fetched on an offline GPU machine that has the rest. Otherwise .venv gets everything, in the
versions of constraints.txt. A second run, with nothing to do, takes a fraction of a second.
"""

from __future__ import annotations  # this file starts on any Python 3.7 or newer, to say which one is needed

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import site
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "kineticsim_setup.json"
OLDEST, NEWEST = (3, 11), (3, 14)

BY_TORCH = ("triton",)  # what torch's CUDA builds bring, in a version of their own

# goal: the groups and extras of pyproject.toml that it installs, and those packages of them without which it is an
# error. Tests that need one of the others are skipped where it cannot be had.
GOALS = {
    "demo": (["train"], ["matplotlib", "tensorboard", "tyro"]),
    "test": (["test"], ["hypothesis", "pytest", "pytest-timeout"]),
    "test-all": (["test"], ["hypothesis", "pytest", "pytest-timeout"]),
    "test-gpu": (["test"], ["hypothesis", "pytest", "pytest-timeout"]),
    "mutants": (["mutants"], ["cosmic-ray", "hypothesis", "pytest", "pytest-cov"]),
    "counts": ([], []),
    "lint": (["lint"], ["ruff", "ty", "cosmic-ray"]),
    "notebooks": (["test"], ["ipykernel", "matplotlib", "nbclient", "nbformat"]),
    "docs": (
        ["docs"],
        ["furo", "matplotlib", "myst-parser", "sphinx", "sphinx-copybutton", "sphinx-gallery"],
    ),
}

# Prints, as JSON, the version of every package that .venv sees, the first on its path where there are several.
LIST_PACKAGES = """
import importlib.metadata, json, re
found = {}
for dist in importlib.metadata.distributions():
    if name := dist.metadata["Name"]:
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), dist.version)
print(json.dumps(found))
"""

# Fails if one of the core packages does not work, though its metadata says that it is installed.
TRY_PACKAGES = """
import filelock, gymnasium, numpy, pettingzoo, setuptools, torch, tqdm
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA GPU"
print(f"torch {torch.__version__}, {gpu}")
"""


def say(text: str) -> None:
    """Print one progress message."""
    print("setup: " + text, flush=True)


def fail(text: str) -> NoReturn:
    """Exit with an error message."""
    sys.exit("setup: " + textwrap.dedent(text).strip())


def use_suitable_python() -> None:
    """Return if this Python will do; else start this script again with one on PATH that does, or say what is needed."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    have = "{}.{}".format(*sys.version_info[:2])
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        other = shutil.which(f"python3.{minor}")
        if other and subprocess.run([other, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            say(f"{sys.executable} is Python {have}; using {other}")
            os.execv(other, [other, *sys.argv])
    fail(f"""
        {sys.executable} is Python {have}, but Python 3.{OLDEST[1]} to 3.{NEWEST[1]} is needed and none is on PATH.
        Install one, then name it: make PYTHON=/path/to/python3.{NEWEST[1] - 1} ...
    """)


def normal(name: str) -> str:
    """Return the normal form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def matched(pattern: str, text: str) -> re.Match[str]:
    """Return the match of a pattern with a whole requirement or version, which is an error if it has another form."""
    match = re.fullmatch(pattern, text.strip())
    if match is None:
        raise ValueError(f"scripts/setup_env.py does not understand {text!r} (pattern {pattern})")
    return match


def requirements(parts: list[str]) -> dict[str, str]:
    """Return package -> version specifier, for the core and for some groups and extras of pyproject.toml."""
    import tomllib

    read = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = read["project"], read["dependency-groups"]
    pending, wanted = list(project["dependencies"]), {}
    for part in parts:
        pending += [{"include-group": part} if part in groups else f"{project['name']}[{part}]"]
    while pending:
        line = pending.pop(0)
        if isinstance(line, dict):
            pending += groups[line["include-group"]]
            continue
        requirement, _, marker = line.partition(";")
        if marker and matched(r"sys_platform == '(\w+)'", marker)[1] != sys.platform:
            continue
        name, own_extras, versions = matched(r"([\w.-]+)(?:\[(.*)\])?(.*)", requirement).groups()
        if name == project["name"]:
            for extra in own_extras.split(","):
                pending += project["optional-dependencies"][extra]
        else:
            wanted[normal(name)] = versions
    return wanted


def satisfies(version: str, specifier: str) -> bool:
    """Say whether a version meets a specifier of >=, < and == clauses; only the numbers of a release count."""

    def numbers(text: str) -> tuple[int, ...]:
        parts = [int(part) for part in matched(r"(\d+(?:\.\d+)*).*", text)[1].split(".")]
        return tuple(parts + [0] * (8 - len(parts)))

    tests = {">=": tuple.__ge__, "<": tuple.__lt__, "==": tuple.__eq__}
    clauses = [matched("(>=|<|==)(.*)", clause).groups() for clause in specifier.split(",") if clause]
    return all(tests[operator](numbers(version), numbers(bound)) for operator, bound in clauses)


def system_torch(specifier: str) -> str | None:
    """Return the version of this Python's torch if it will do, else None."""
    from importlib import metadata

    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    return version if satisfies(version, specifier) and importlib.util.find_spec("torch") else None


def ask_venv(code: str) -> subprocess.CompletedProcess:
    """Run some code with .venv's Python."""
    command = [str(VENV_PYTHON), "-c", code]
    try:
        return subprocess.run(command, cwd=VENV, capture_output=True, text=True)
    except OSError as error:  # a .venv that came from a machine of another kind
        return subprocess.CompletedProcess(command, 1, "", str(error))


def create_venv(torch_version: str | None) -> None:
    """Make .venv, unless there is one that works; `torch_version` is that of a torch to be shared with this Python."""
    works = f"import sys; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
    if VENV_PYTHON.exists() and ask_venv(works).returncode == 0:
        return
    python = "Python {}.{}.{}".format(*sys.version_info[:3])
    say(f"creating .venv with {python}" + (f" and its torch {torch_version}" if torch_version else ""))
    command = [sys.executable, "-m", "venv", "--clear"]
    # Without ensurepip (Debian's python3 without python3-venv) another pip may still be there: see pip().
    if torch_version or importlib.util.find_spec("ensurepip") is None:
        command.append("--without-pip")
    # A venv made from a venv would see the packages of the Python below both, so it is led to its parent's instead.
    in_venv = sys.prefix != sys.base_prefix
    if torch_version and not in_venv:
        command.append("--system-site-packages")
    done = subprocess.run([*command, str(VENV)], capture_output=True, text=True)
    if done.returncode:
        hint = "On Debian and Ubuntu: sudo apt install python3-venv\n" if sys.platform == "linux" else ""
        sys.exit(f"setup: .venv could not be created.\n{hint}{done.stdout}{done.stderr}")
    if torch_version and in_venv:
        folders = site.getsitepackages()
        add_path_file("kineticsim_parent", *(f"import site; site.addsitedir({folder!r})" for folder in folders))
        # torch looks for ninja's program beside the Python that runs.
        ninja = Path(sys.executable).parent / "ninja"
        if ninja.exists():
            (VENV / "bin" / "ninja").symlink_to(ninja)


def is_shared() -> bool:
    """Say whether .venv sees the packages of the Python it was made with."""
    config = (VENV / "pyvenv.cfg").read_text()
    return "include-system-site-packages = true" in config or any(VENV.glob("lib/*/*/kineticsim_parent.pth"))


def add_path_file(name: str, *lines: str) -> None:
    """Write a .pth file, whose lines Python carries out when .venv's interpreter starts."""
    folder = ask_venv("import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    (Path(folder) / f"{name}.pth").write_text("\n".join(lines) + "\n")


def pip() -> list[str]:
    """Return the command of a pip that installs into .venv."""
    if ask_venv("import pip").returncode == 0:
        return [str(VENV_PYTHON), "-m", "pip"]
    if ask_venv("import ensurepip; ensurepip.bootstrap()").returncode == 0:
        return [str(VENV_PYTHON), "-m", "pip"]
    outer = [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]
    if subprocess.run([*outer, "--version"], capture_output=True).returncode == 0:
        return outer
    fail("""
        pip is needed and this Python has none (on Debian and Ubuntu: sudo apt install python3-venv python3-pip).
        Then run make again.
    """)


def installed() -> dict[str, str]:
    """Return package -> version of all that .venv sees."""
    return json.loads(ask_venv(LIST_PACKAGES).stdout)


def missing(wanted: dict[str, str]) -> dict[str, str]:
    """Return those of the wanted packages that .venv does not see in a suitable version."""
    have = installed()
    return {name: spec for name, spec in wanted.items() if name not in have or not satisfies(have[name], spec)}


def pinned() -> dict[str, str]:
    """Return the lines of our constraints by package."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return {normal(line.split("==")[0]): line for line in lines}


def write_constraints() -> Path:
    """Return a constraints file: ours, but for what torch brings, and a shared package stays as it is."""
    have = installed() if is_shared() else {}
    pins = [line for name, line in pinned().items() if name not in have and name not in BY_TORCH]
    path = VENV / "constraints.txt"
    if "torch" in have:
        pins.append(f"torch=={have['torch']}")
    path.write_text("\n".join(pins) + "\n")
    return path


def install(wanted: dict[str, str], required: list[str]) -> None:
    """Install packages, all at once or, where that fails, one by one, the required ones first."""
    command = [*pip(), "install", "--disable-pip-version-check", "--no-input", "-c", str(write_constraints())]
    if is_shared():
        command += ["--retries", "1", "--timeout", "15"]
    if "torch" not in wanted or "torch" in installed():
        command.append("--quiet")
    else:
        say("torch can be a download of some GB with its CUDA libraries; a torch that this Python has would be used")

    def run(names: list[str], *options: str) -> bool:
        return subprocess.run([*command, *options, *(name + wanted[name] for name in names)]).returncode == 0

    lacking = ", ".join(missing(wanted))
    say(f"installing {lacking}" if lacking else "checking .venv against constraints.txt")
    at_once = [name for name in wanted if name not in BY_TORCH]
    done = not at_once or run(at_once)
    for name in missing({name: spec for name, spec in wanted.items() if name in BY_TORCH}):
        subprocess.run([*command, pinned()[name]])  # there is a torch by now, which has not brought it
    if done or len(wanted) == 1:
        return
    say("that failed; trying one by one")
    failures = 0
    for name in sorted(at_once, key=lambda name: name not in required):
        failures = 0 if run([name], "-qqq") else failures + 1
        if failures == 2:
            return  # no network, most likely: each further attempt would only wait for it


def report_missing(lacking: dict[str, str], required: list[str], strict: bool) -> None:
    """Print what could not be installed and how to get it; exit if it is required."""
    if not lacking:
        return
    fatal = sorted(lacking) if strict else [name for name in sorted(lacking) if name in required]
    optional = sorted(set(lacking) - set(fatal))
    if optional:
        say(f"not installed, so what needs them is skipped: {', '.join(optional)}")
    if fatal:
        needs = " ".join(f"'{name}{lacking[name]}'" for name in fatal)
        fail(f"""
            these packages are needed and could not be installed: {needs}
            With a network: .venv/bin/python -m pip install -c constraints.txt {needs}
            Without: on a machine that has one, of the same system and Python version,
              python3 -m pip download -c constraints.txt -d wheels {needs}
            bring the folder here and run
              PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels make ...
        """)


def main() -> None:
    """Set up .venv for one make target."""
    use_suitable_python()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goal", choices=GOALS, help="the make target to set up for")
    parser.add_argument("--strict", action="store_true", help="fail if any package is missing, also an optional one")
    parser.add_argument("--own-torch", action="store_true", help="do not use a torch that this Python has")
    args = parser.parse_args()

    parts, needed = GOALS[args.goal]
    inputs = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt", "scripts/setup_env.py")]
    # PYTHONPATH, since .venv sees what is on it too.
    inputs.append(repr((str(ROOT), os.environ.get("PYTHONPATH"), parts)).encode())
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()
    stamps = json.loads(STAMP.read_text()) if STAMP.exists() and VENV_PYTHON.exists() else {}
    if key in stamps and not (args.strict and stamps[key]):
        report_missing(stamps[key], required=[], strict=False)
        return

    wanted = requirements(parts)
    required = [*requirements([]), *needed]
    create_venv(None if args.own_torch else system_torch(wanted["torch"]))
    add_path_file("kineticsim_checkout", str(ROOT))
    # In an environment of our own pip also brings what is there to the pinned versions; a shared one is only completed.
    lacking = missing(wanted) if is_shared() else wanted
    if lacking:
        install(lacking, required)
        lacking = missing(wanted)
    report_missing(lacking, required, args.strict)
    tried = ask_venv(TRY_PACKAGES)
    if tried.returncode:
        fail("a package is installed but does not work:\n" + tried.stderr + "`make clean` and start again, perhaps "
             "with SETUP_FLAGS=--own-torch or another PYTHON=...")  # fmt: skip
    say(f"ready: {tried.stdout.strip()}")
    STAMP.write_text(json.dumps({**stamps, key: lacking}, indent=1))


if __name__ == "__main__":
    main()
