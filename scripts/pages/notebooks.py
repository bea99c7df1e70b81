"""Write notebooks/*.ipynb: the tutorials of docs/tutorials, with what they print and draw. `make notebooks` runs it.

    python -m scripts.pages.notebooks
    python -m scripts.pages.notebooks start

A tutorial is a script, of which sphinx-gallery makes a page of the site. A notebook has the same text and code, and a
cell that installs the package in a hosted notebook. tests/test_notebooks.py runs each, and compares what it prints.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
SCRIPTS = {path.stem.partition("_")[2]: path for path in sorted((ROOT / "docs" / "tutorials").glob("*.py"))}
VARIES = "machine to machine"  # a comment of a cell whose numbers depend on the processor has these words
SECONDS = 300  # for a cell

INSTALL = """\
# In a hosted notebook, clone or upload the repository first. Where the package is installed, nothing is done.
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait sleep, as other notebooks may run here
needed = ("kineticsim_env", "pettingzoo")  # the latter is one that the package needs
if not all(getattr(importlib.util.find_spec(name), "origin", None) for name in needed):
    here = Path.cwd()
    places = [here, *here.parents, *sorted(here.iterdir())]
    checkout = next((place for place in places if (place / "kineticsim_env" / "py.typed").exists()), None)
    if checkout is None:
        raise ModuleNotFoundError(f"no checkout of KineticSim-Env is at, above or in {here}: clone or upload one there")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"{checkout}[render,sweep,train]"], check=True)
    os.chdir(checkout / "notebooks")"""


def notebook_of(script: Path) -> nbformat.NotebookNode:
    """Return the notebook of a tutorial, which has not run: what it is, `INSTALL`, and its blocks."""
    title, _, rest = script.read_text().removeprefix('"""').partition('"""')
    cells = [nbformat.v4.new_markdown_cell(markdown(title)), nbformat.v4.new_code_cell(INSTALL)]
    for block in rest.split("\n# %%\n")[1:]:
        lines = block.splitlines()
        text = [*itertools.takewhile(lambda line: line.startswith("#"), lines)]
        cells.append(nbformat.v4.new_markdown_cell(markdown("\n".join(line[2:] for line in text))))
        if code := "\n".join(lines[len(text) :]).strip():
            cells.append(nbformat.v4.new_code_cell(code))
    for place, cell in enumerate(cells):
        cell.id = f"cell-{place}"  # else by chance
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def markdown(text: str) -> str:
    """Return a tutorial's reStructuredText as Markdown, which has the same headings and lists; roles become links."""
    text = re.sub(r":doc:`(?:([^`<]*) <)?/([^`>]*)>?`", lambda match: link(match[2], match[1]), text)
    text = re.sub(r":\w+:`~(?:\w+\.)*(\w+)`", r"`\1`", text)
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text).replace("``", "`").strip()


def link(page: str, label: str | None) -> str:
    """Return a link to a page of the site, under its title where there is no label."""
    study = page.startswith("studies/")
    path = f"examples/{page}/README.md" if study else f"docs/{page}.md"
    title = (ROOT / path).read_text().partition("\n")[0].removeprefix("# ")
    return f"[{label or title}](../{path})"


def run(notebook: nbformat.NotebookNode) -> None:
    """Run a notebook from top to bottom on the CPU, as if it had been opened in its folder."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(paths)}
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": FOLDER}},
    )
    client.execute(env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":  # what is said there is of this machine: the engine, compilers and their folders
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def printed(cell: nbformat.NotebookNode) -> str:
    """Return what a cell prints, without its numbers where they depend on the processor."""
    text = "".join(output.get("text", "") for output in cell.get("outputs", ()))
    return re.sub(r"\s*-?[\d.]+", " #", text) if VARIES in cell.source else text


def main() -> None:
    """Run the tutorials, and write them with their outputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(SCRIPTS)}; all if none is named")
    for name in parser.parse_args().names or SCRIPTS:
        began, notebook = time.perf_counter(), notebook_of(SCRIPTS[name])
        run(notebook)
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")
        print(f"{name}.ipynb: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
