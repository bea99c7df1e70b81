"""Train with libraries whose pins conflict with this project's, each in a virtual environment of its own.

For each library: make a temporary virtual environment, install the library into it, and run its block of
`docs/libraries.md`. What is installed beside the Python that runs this (torch above all) is used where the library's
pins allow it, so that little is fetched. Not a part of `make test`: it takes one to three minutes and some hundred MB a
library.

    python scripts/test_conflicting_trainers.py rllib agilerl benchmarl
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "libraries.md"
LIBRARIES = {
    "rllib": ["ray[rllib]==2.60.0", "gymnasium==1.2.2"],
    "agilerl": ["agilerl==2.58.0", "peft==0.21.2"],  # its algorithms import peft, which it does not ask for
    "benchmarl": ["benchmarl==1.5.2"],
}


def recipe(library: str) -> str:
    """Return the Python block of the page that names a library in its comment."""
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if f"test_conflicting_trainers.py {library}" in block:
            return block
    raise SystemExit(f"{PAGE.name} has no block for {library}")


def make_environment(folder: Path, requirements: list[str]) -> Path:
    """Make a virtual environment that sees this one's packages behind its own; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    parent = sysconfig.get_path("purelib")
    (Path(own) / "parent.pth").write_text(f"{ROOT}\nimport site; site.addsitedir({parent!r})\n")
    torch = f"torch=={metadata.version('torch')}"  # the one that is here, not another
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-input", *requirements, torch], check=True)
    return python


def try_library(library: str, keep: Path | None) -> bool:
    """Install a library and run its recipe; return whether it trained."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "venv" if keep is None else keep / library
        try:
            python = make_environment(folder, LIBRARIES[library])
        except subprocess.CalledProcessError as error:
            print(f"{library}: could not be installed ({error})", flush=True)
            return False
        installed = time.perf_counter()
        file = Path(scratch) / "recipe.py"  # a file, as some start processes that import it
        file.write_text(recipe(library))
        done = subprocess.run([python, file.name], cwd=scratch, check=False)
    verdict = "trained" if done.returncode == 0 else f"FAILED with exit status {done.returncode}"
    took = f"{installed - start:.0f} s to install, {time.perf_counter() - installed:.0f} s to run"
    print(f"{library}: {verdict} ({', '.join(LIBRARIES[library])}; {took})", flush=True)
    return done.returncode == 0


def main() -> None:
    """Try the libraries that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", help=f"of {', '.join(LIBRARIES)}; all where none is named")
    parser.add_argument("--keep", type=Path, help="make the virtual environments in this folder, and leave them there")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.libraries) - set(LIBRARIES)):
        parser.error(f"expected one of {', '.join(LIBRARIES)}, got {unknown[0]!r}")
    results = [try_library(library, arguments.keep) for library in arguments.libraries or LIBRARIES]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
