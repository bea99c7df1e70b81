"""Notebooks are those of the tutorials, run from top to bottom, and hold what the code as it is prints."""

import base64
import os
import re
import subprocess
import sys

import pytest
from thorough import slow

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from scripts.pages import notebooks  # noqa: E402

FILES = {name: notebooks.FOLDER / f"{name}.ipynb" for name in notebooks.SCRIPTS}
NEEDED = ("matplotlib", "pandas", "pygame", "pyarrow", "safetensors", "scipy", "tensorboard", "tyro")
LARGEST = 500_000  # bytes of a file


def stored(name):
    return nbformat.read(FILES[name], as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(cell):
    return [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]


def test_every_tutorial_is_a_notebook():
    assert sorted(FILES.values()) == sorted(notebooks.FOLDER.glob("*.ipynb"))
    assert {"start", "market_research"} <= FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_text_and_code_are_those_of_the_tutorial(name):
    """`make notebooks` writes them."""
    found, wanted = stored(name), notebooks.notebook_of(notebooks.SCRIPTS[name])
    parts = [[(cell.cell_type, cell.id, cell.source) for cell in each.cells] for each in (found, wanted)]
    assert parts[0] == parts[1] and found.metadata.kernelspec == wanted.metadata.kernelspec


@pytest.mark.parametrize("name", FILES)
def test_outputs_are_stored_and_small(name):
    notebook = stored(name)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = {(output.output_type, output.get("name")) for cell in cells for output in cell.outputs}
    assert kinds <= {("stream", "stdout"), ("display_data", None)}
    assert all(pictures(cell) for cell in cells if "plt.show()" in cell.source)
    assert all(base64.b64decode(each).startswith(b"\x89PNG") for cell in cells for each in pictures(cell))
    text = FILES[name].read_text()
    assert len(text) < LARGEST and not re.search(r"/(?:home|Users|ro" + r"ot|tmp|wor" + "k)/", text)


@pytest.mark.parametrize("name", FILES)
def test_texts_have_no_roles_and_links_lead_somewhere(name):
    text = "\n".join(cell.source for cell in stored(name).cells if cell.cell_type == "markdown")
    assert not re.findall(r":\w+:`|``", text)
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert all((notebooks.FOLDER / link).is_file() for link in links)
    assert links or name not in ("start", "market_research")


def test_roles_become_links_and_code():
    text = ":doc:`/training`, :doc:`a study </studies/clearing>`, :class:`~kineticsim_env.MarketConfig`, ``seed``"
    assert notebooks.markdown(text) == (
        "[Training with the examples](../docs/training.md), [a study](../examples/studies/clearing/README.md), "
        "`MarketConfig`, `seed`"
    )


@slow
@pytest.mark.parametrize("name", FILES)
def test_notebook_runs_and_prints_what_is_stored(name):
    for module in NEEDED:
        pytest.importorskip(module)
    notebook, before = stored(name), stored(name)
    notebooks.run(notebook)
    for cell, old in zip(code_cells(notebook), code_cells(before), strict=True):
        assert notebooks.printed(cell) == notebooks.printed(old), cell.source
        assert len(pictures(cell)) == len(pictures(old)), cell.source
    assert any(notebooks.printed(cell) for cell in code_cells(before))


def test_numbers_are_compared_unless_a_comment_says_that_they_differ():
    def cell(source, text):
        output = nbformat.v4.new_output("stream", name="stdout", text=text)
        return nbformat.v4.new_code_cell(source, outputs=[output])

    same, varies = "print(x)", f"print(x)  # {notebooks.VARIES}"
    assert notebooks.printed(cell(same, "PnL 12")) != notebooks.printed(cell(same, "PnL 9"))
    assert notebooks.printed(cell(varies, "PnL 12")) == notebooks.printed(cell(varies, "PnL  -9.5"))
    assert notebooks.printed(cell(varies, "PnL 12")) != notebooks.printed(cell(varies, "loss 12"))


def first_cell(folder, *options, path=""):
    """Run the cell that installs, in a folder; returns what pip is told and where it ends, and the error."""
    code = f"import subprocess\nsubprocess.run = lambda words, check: print(*words[1:])\n{notebooks.INSTALL}\n"
    words, environment = (
        [sys.executable, *options, "-c", f"{code}print(os.getcwd())"],
        {**os.environ, "PYTHONPATH": path},
    )
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.splitlines(), done.stderr


def test_first_cell_installs_a_checkout_that_is_near(tmp_path):
    checkout = tmp_path / "a_checkout"
    (checkout / "kineticsim_env").mkdir(parents=True)
    (checkout / "kineticsim_env" / "py.typed").touch()
    (checkout / "notebooks").mkdir()
    for folder in (tmp_path, checkout, checkout / "notebooks"):
        told = [f"-m pip install --quiet {checkout}[render,sweep,train]", str(checkout / "notebooks")]
        assert first_cell(folder, "-S") == (told, "")  # no package is installed


def test_first_cell_says_what_is_missing(tmp_path):
    printed, error = first_cell(tmp_path, "-S")
    assert not printed and re.search(r"ModuleNotFoundError: no checkout .*: clone or upload one there", error)


def test_first_cell_does_nothing_where_the_package_is(tmp_path):
    path = os.pathsep.join([str(notebooks.ROOT), *sys.path])
    assert first_cell(tmp_path, path=path) == ([str(tmp_path)], "")
