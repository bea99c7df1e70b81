"""README.md and docs/ say what is true: their Python runs, their commands and files exist, their links lead somewhere.

Written for whatever pages there are: a new page in docs/ is checked without a word here. `make docs` checks more: it
builds the site, with every link and name in it, and runs the tutorials; any warning is an error there.
"""

import argparse
import ast
import contextlib
import ctypes
import functools
import importlib.util
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from unittest import mock

import gymnasium
import pytest
from thorough import slow

import kineticsim_env
from kineticsim_env import cli
from kineticsim_env.config import PRESETS
from kineticsim_env.engines import cuda
from kineticsim_env.runtime import build, layout
from scripts import page_words
from scripts.benchmarks import __main__ as benchmarks
from scripts.pages import environments, performance_rows

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MADE = (DOCS / "_build", DOCS / "gallery", DOCS / "studies")  # by `make docs`


def site_pages(ending: str) -> list[Path]:
    """Return the pages below docs/ that are written by hand."""
    return sorted(page for page in DOCS.rglob(f"*{ending}") if not set(MADE) & set(page.parents))


STUDIES = sorted((ROOT / "examples" / "studies").glob("*/README.md"))
PAGES = [*(ROOT / f"{page}.md" for page in ("README", "CHANGELOG", "CONTRIBUTING")), *site_pages(".md"), *STUDIES]
HISTORY = ("CHANGELOG.md", "changelog.md", "performance_log.md")  # these name what is no more
OPTIONAL = (
    "array_api_compat",
    "matplotlib",
    "moviepy",
    "pygame",
    "safetensors",
    "stable_baselines3",
    "tensorboard",
    "tyro",
)
OPTIONAL += (
    "agilerl",
    "benchmarl",
    "h5py",
    "minari",
    "pandas",
    "pyarrow",
    "ray",
    "rl_games",
    "rsl_rl",
    "sb3_contrib",
    "sbi",
    "scipy",
    "skrl",
)
OPTIONAL += ("torchrl", "tree", "triton")  # RLlib, which sweeps on Ray do without, needs the latter
LONG = ("examples/studies/calibration/README.md",)  # its Python is slow; tests/test_calibration.py calls the same
SIMULATIONS = 100  # of a file that is calibrated, whatever it says
SMALLER = {  # what is named without sizes, with some
    "simulate": ["--markets", "2", "--auctions", "2"],
    "scorecard": ["--markets", "16", "--intervals", "200"],
    "evaluate quiet quotes": ["--episodes", "32"],
}
ISOLATED = ("rl_games",)  # changes torch's settings for the whole process

_FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_SOURCE_FILE = re.compile(r"`((?:[\w.]+/)*[\w.]+\.(?:py|h|cuh|cu|cpp|toml|md))`")
_CODE = re.compile(r"`([^`\n]+)`")
_NAMED_IN = re.compile(r"`([\w./]+)`\s\(((?:`\w+`(?:,\s)?)+)\)")  # `path` (`name`, `name`)
_SOURCES = (".py", ".h", ".cuh", ".cu", ".cpp")
# What is counted, "a", per what: see the end of docs/glossary.md.
_COUNTED = "steps ticks units events decisions orders registers instructions warps markets bytes bits KB MB one".split()
_PER = "second step tick unit episode decision auction market agent slot lane warp multiprocessor launch side".split()
_AMBIGUOUS = re.compile(rf"\b(?:{'|'.join(_COUNTED)})\s+an?\s+(?:{'|'.join(_PER)})\b")


def name(page: Path) -> str:
    """Return a page's name in the checkout."""
    return page.relative_to(ROOT).as_posix()


def blocks(language: str) -> list:
    """Return the fenced blocks of all pages in a language, as parameters named by page and line."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _FENCE.finditer(text):
            if match.group(1) == language:
                line = text.count("\n", 0, match.start()) + 1
                long = name(page) in LONG or any(f"from {library}" in match.group(2) for library in ISOLATED)
                marks = [slow] if language == "python" and long else []
                found.append(pytest.param(match.group(2), id=f"{name(page)}:{line}", marks=marks))
    return found


def prose(page: Path) -> str:
    """Return a page's text without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def commands() -> list:
    """Return every command of the bash blocks, and of the lines of prose that name one of ours, without comments."""
    found = {}
    for block in blocks("bash"):
        for line in block.values[0].replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                found[" ".join(words)] = words
    for page in PAGES:
        for text in re.findall(r"`((?:make|pytest|python -m kineticsim_env|pip install) [^`]*)`", prose(page)):
            words = shlex.split(text)
            found[" ".join(words)] = words
    return [pytest.param(words, id=text) for text, words in found.items()]


# Python ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if any(f"from {name}" in code and importlib.util.find_spec(name) for name in ISOLATED):
        monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    module = types.ModuleType("documentation")
    monkeypatch.setitem(sys.modules, "documentation", module)  # torch.compile asks for it
    try:
        source = tmp_path / "documentation.py"  # a class of agents reads the source of its function
        source.write_text(code)
        exec(compile(code, str(source), "exec"), module.__dict__)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OPTIONAL:
            pytest.skip(str(error))
        raise


def test_first_pages_begin_with_a_loop():
    """Of five lines, below the moving picture; it is the same one."""
    loops = set()
    for page in (ROOT / "README.md", DOCS / "index.md"):
        text = page.read_text()
        first = _FENCE.search(text)
        assert first.group(1) == "python" and len(first.group(2).split("\n")) - first.group(2).count("\n\n") <= 6
        assert text.index("learned_maker.gif") < first.start() < first.end() < text.index("```bash")
        loops.add(first.group(2))
    (loop,) = loops
    assert "gym.make_vec(" in loop and "envs.step(" in loop


def test_pages_that_must_stay_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    assert len((DOCS / "architecture.md").read_text().splitlines()) <= 250


@pytest.mark.parametrize("page", page_words.on_the_path())
def test_pages_of_the_users_path_are_short(page):
    """`python -m scripts.page_words` prints how long each page is."""
    assert page_words.words((ROOT / page).read_text()) <= page_words.MOST_ON_THE_PATH


def test_what_is_not_written_by_hand_is_not_counted():
    filled = """One <!-- [[[cog say("two") ]]] -->
2
words<!-- [[[end]]] -->.\n
```bash
make demo
```
<!-- clock: written by `python -m scripts.pages.performance` -->
one two three
<!-- end -->
| a | b |
<!-- figures: begin -->
one two
<!-- figures: end -->
"""
    assert page_words.words(filled) == len("One . | a | b |".split())


def test_figures_of_the_readme_are_those_of_the_pages():
    """Every number of its table of figures stands on the page that it names."""
    text = (ROOT / "README.md").read_text()
    number = re.compile(r"\d[\d.,]*(?: [GM]\b)?|\d")
    table = "".join(re.findall(r"^\|.*\|$", text.partition("\n## Figures")[2].partition("\n## ")[0], re.MULTILINE))
    there = set(number.findall((DOCS / "performance.md").read_text()))
    found = set(number.findall(table.replace("H200", "")))
    assert len(found) > 10 and found <= there, found - there


def test_ours_among_its_peers_is_what_was_measured():
    """The README and docs/peers.md compare rates of the default market, and of the paper's, with those of others."""
    figures = performance_rows.load(DOCS / "benchmarks" / "performance_h200.json")
    row = {
        name: figures["default", name]
        for name in ("run, 65536 markets", *(f"run, {at} markets" for at in (1024, 8192)))
    }
    runs = [f"{performance_rows.rate(each['events_per_s'])} orders/s" for each in row.values()]
    steps = [
        performance_rows.rate(figures["default", f"MarketMaking, {at} markets"]["steps_per_s"]) for at in (4096, 65536)
    ]
    text = (ROOT / "README.md").read_text().partition("## Beside other simulators")[2].partition("\n## ")[0]
    assert f"{steps[0]} with 4,096 markets, {steps[1]} with 65,536" in text and runs[0] in text
    notes = " ".join((DOCS / "peers.md").read_text().split())
    of = [performance_rows.rate(each["events_per_s"]) for each in row.values()]
    assert f"{of[1]} orders/s with 1,024 markets, {of[2]} with 8,192, {of[0]} with 65,536" in notes
    others = (DOCS / "benchmarks" / "README.md").read_text()
    said = re.findall(r"\d[\d.]* [GM](?= orders/s, by|, by JAX|\s\(\[benchmarks)", " ".join(text.split()))
    assert len(said) == 3 and not [rate for rate in said if f"| {rate} |" not in others]
    few, many = json.loads((DOCS / "benchmarks" / "jax_rates.json").read_text())["rates"]["JAX-LOB"].values()
    for rates in (f"{few / 1e6:.2f} M messages/s with 1,024 books", f"{many / 1e6:.2f} M with 65,536"):
        assert rates in notes and rates in " ".join((DOCS / "performance.md").read_text().split())
    assert f"{many / 1e6:.1f} M messages/s" in text


def test_pages_show_every_way_in():
    code = "".join(block.values[0] for block in blocks("python"))
    for words in (
        "ks.Simulator(",
        ".rollout(",
        "record=",
        ".branch()",
        "gym.make_vec(",
        "gym.make(",
        "ks.parallel_env(",
    ):
        assert words in code, words


# Commands -------------------------------------------------------------------------------------------------------------


def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def check_make(words: list[str]) -> None:
    assert words[1] in targets()


def check_pip(words: list[str]) -> None:
    """Check that what is installed is this checkout or this package, with extras that it has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words[2:]:
        name, bracket, listed = word.partition("[")
        if name in (".", "kineticsim-env") and bracket:
            assert set(listed.rstrip("]").split(",")) <= set(extras)


def check_module(words: list[str], folder: Path, monkeypatch) -> None:
    """Run `python -m kineticsim_env ...`; of other modules see that they exist."""
    if words[2] != "kineticsim_env":
        folder = ROOT / words[2].replace(".", "/")
        assert importlib.util.find_spec(f"{words[2]}.__main__" if folder.is_dir() else words[2])
        if words[2] == "scripts.benchmarks":  # tests/test_benchmarks.py runs it
            benchmarks._parser().parse_args(words[3:])
        return
    arguments = [f"{ROOT}/{word}" if word.startswith("examples/") else word for word in words[3:] if word != "|"]
    if len(arguments) != len(words[3:]) or not arguments:  # `doctor | simulate`
        assert set(arguments) <= {"doctor", "simulate", "play"}
        return
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(folder)
    if arguments[0] in ("play", "fit"):  # tests/test_play.py and tests/test_fit_command.py run them
        cli._parser().parse_args(arguments)
        return
    if arguments[0] == "calibrate":
        given, arguments[1] = Path(arguments[1]), str(folder / "fewer.toml")
        fewer, lines = re.subn(r"(?m)^simulations = \d+", f"simulations = {SIMULATIONS}", given.read_text())
        assert lines == 1
        (folder / "fewer.toml").write_text(fewer)
    arguments += SMALLER.get(" ".join(arguments), [])
    assert cli.main(arguments) in ((0, 1) if arguments == ["doctor"] else (0,))
    for option in ("--save", "--plot"):
        if option in arguments:
            assert (folder / arguments[arguments.index(option) + 1]).stat().st_size


@functools.cache
def help_of(script: str) -> str:
    """Return what a script prints for --help. It runs in this process, which has imported torch already."""
    shown = io.StringIO()
    with (
        mock.patch.dict(os.environ),
        mock.patch.object(sys, "argv", [script, "--help"]),
        mock.patch.object(sys, "path", [str((ROOT / script).parent), *sys.path]),  # as Python does for a script
        contextlib.redirect_stdout(shown),
        pytest.raises(SystemExit) as ended,
    ):
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert not ended.value.code
    return shown.getvalue()


def check_script(words: list[str]) -> None:
    """See that a script exists, and that it knows the options."""
    assert (ROOT / words[1]).is_file()
    if not all(importlib.util.find_spec(name) for name in ("tyro", "tensorboard")):
        pytest.skip("the examples need the extra 'train'")
    shown = help_of(words[1])
    for option in (word for word in words[2:] if word.startswith("--")):
        assert option.partition("=")[0] in shown


@pytest.mark.parametrize("words", commands())
def test_commands_exist(words, tmp_path, monkeypatch):
    if words[0] == "make":
        check_make(words)
    elif words[:2] == ["pip", "install"]:
        check_pip(words)
    elif words[:2] == ["python", "-m"]:
        check_module(words, tmp_path, monkeypatch)
    elif words[0] == "python":
        check_script(words)
    elif words[0] == "torchrun":
        check_script([word for word in words if not word.startswith("--nproc")])
    elif words[0] == "pytest":
        chosen = words.index("-k") if "-k" in words else len(words)
        assert all((ROOT / word).is_file() for word in words[1:chosen])
    else:
        pytest.fail(f"nobody checks the command {words[0]!r}")


def test_pages_name_all_subcommands():
    parser = cli._parser()
    action = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    text = "".join(page.read_text() for page in PAGES)
    for name in action.choices:
        assert f"python -m kineticsim_env {name}" in text or name == "bench"  # which says where it has gone


# Files and links ------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_pictures_resolve(page):
    missing = []
    for link in _LINK.findall(prose(page)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert not missing, f"{page.name} links to what is not there"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_files_exist(page):
    package = ROOT / "kineticsim_env"
    places = (ROOT, page.parent, package, package / "engines", ROOT / "cuda")
    names = set(_SOURCE_FILE.findall(prose(page)))
    assert not {name for name in names if not any((place / name).exists() for place in places)}


def source_files() -> list[Path]:
    """Return every source file of the checkout but those of tests."""
    folders = ("cuda", "kineticsim_env", "examples", "scripts", "docs/_ext")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in _SOURCES]


def test_the_map_of_the_code_is_whole():
    """docs/architecture.md has a line for every room, a study has a page, and every file says at its top what it is."""
    listed = set(_CODE.findall((DOCS / "architecture.md").read_text())) | {name(page.parent) for page in STUDIES}
    files = source_files()
    assert files
    assert {path.parent.relative_to(ROOT).as_posix() for path in files} - listed == set()
    for path in files:
        first = path.read_text().lstrip("#!\n").splitlines()[0]
        assert first.startswith('"""' if path.suffix == ".py" else "// ") and len(first) > 20, path


@functools.cache
def words_of_the_sources() -> frozenset[str]:
    """Return every word of the sources, of the tests and of what builds them."""
    paths = [*source_files(), *(path for path in (ROOT / "tests").iterdir() if path.suffix in _SOURCES)]
    paths += [ROOT / "Makefile", ROOT / "pyproject.toml", *DOCS.rglob("*.json"), *(ROOT / "examples").rglob("*.json")]
    return frozenset(word for path in paths for word in re.findall(r"\w+", path.read_text()))


def unknown(code: str, shown: str = "") -> list[str]:
    """Return what of a piece of inline code is nowhere in the repository, or in code that is shown beside it.

    That is a path, or a word that looks like a name: with an underscore, or with a capital inside.
    """
    if re.fullmatch(r"\w[\w.-]*(?:/[\w.-]+)+", code):
        elsewhere = code in gymnasium.registry or (ROOT / code).is_relative_to(MADE[0])
        return [code] if not elsewhere and not any((place / code).exists() for place in (ROOT, DOCS)) else []
    if not re.fullmatch(r"[A-Za-z_][\w.]{3,}(?:\(\))?", code):
        return []
    names = [word for word in re.findall(r"\w{3,}", code) if "_" in word or re.search(r"[a-z][A-Z]", word)]
    beside = set(re.findall(r"\w+", shown))
    return [word for word in names if word not in words_of_the_sources() and word not in beside]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in HISTORY], ids=name)
def test_names_in_code_exist(page):
    shown = "".join(match.group(2) for match in _FENCE.finditer(page.read_text()))
    assert not {code for code in _CODE.findall(prose(page)) if unknown(code, shown)}


def test_names_that_do_not_exist_are_found():
    assert unknown("KS_NOTHING_" + "SUCH") and unknown("cuda/no_such_" + "file.h") and unknown("Market.noSuch" + "Name")
    assert not unknown("MarketConfig.preset") and not unknown("cuda/model") and not unknown("[M, K]")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_names_are_in_the_files_that_are_said_to_have_them(page):
    for path, names in _NAMED_IN.findall(prose(page)):
        assert (ROOT / path).is_file(), path
        words = set(re.findall(r"\w+", (ROOT / path).read_text()))
        assert not set(_CODE.findall(names)) - words, path


def defines(path: Path, symbol: str) -> bool:
    """Say whether a file defines a symbol: not whether it says its name, as who calls it does, too."""
    text = path.read_text()
    if path.suffix == ".py":
        nodes = [*ast.walk(ast.parse(text))]
        named = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        stores = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        return symbol in named | stores
    text = re.sub(r"__attribute__\(\(\w+\)\) ", "", text)
    if re.search(rf"\b(?:struct|enum|enum class)\s+{symbol}\b[^;]*?{{", text):
        return True
    # A function: a type, the name, what it takes, and its body; a template's call has no type before it.
    heads = re.finditer(rf"(?m)^[ \t]*(?!return\b|else\b)[\w:<>,*& ]*[\w>*&] +[*&]?{symbol}\(", text)
    return any(_body_follows(text, head.end()) for head in heads)


def _body_follows(text: str, inside: int) -> bool:
    """Say whether `{` follows the bracket that closes the one before a place."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[inside], 0)
        inside += 1
    return re.match(r"(?:\s|const|noexcept)*\{", text[inside:]) is not None


def test_where_to_look_names_what_files_define():
    """Each symbol is defined in the file beside it; a reader who opens that one is there."""
    section = (DOCS / "architecture.md").read_text().partition("\n## Where to look\n")[2].partition("\n## ")[0]
    named = [(path, symbol) for path, names in _NAMED_IN.findall(section) for symbol in _CODE.findall(names)]
    asked = ("continuous trading", "clearing price", "tie=", "under levers", "order does a step", "reward computed")
    asked += tuple(f"a {what} touch" for what in ("task", "lever", "statistic"))
    assert not [words for words in asked if words not in section] and len(named) > 50
    assert not [f"{path}: {symbol}" for path, symbol in named if not defines(ROOT / path, symbol)]


def test_who_calls_a_function_does_not_define_it():
    assert defines(ROOT / "cuda/model/market.h", "clearing_price")
    assert not defines(ROOT / "cuda/model/auction.h", "clearing_price")
    assert not defines(ROOT / "cuda/cpu/call.h", "clearing_price_under_levers")
    assert defines(ROOT / "kineticsim_env/engines/numpy/rules.py", "ration")
    assert not defines(ROOT / "kineticsim_env/engines/numpy/auction.py", "ration")


def test_numbers_in_prose_are_those_of_the_code():
    def says(page: str, pattern: str) -> list[str]:
        found = re.findall(pattern, (DOCS / page).read_text())
        assert found, (page, pattern)
        return found

    work = f"{cuda._WORK_TO_SPECIALISE // 10**11} * 10^11"
    for page in ("kernels.md", "performance.md"):
        assert set(says(page, r"by itself after (\d+ \* 10\^\d+)")) == {work}
    doubles = sum(
        kind._length_ if hasattr(kind, "_length_") else 1
        for _, kind in layout.TaskParams._fields_
        if getattr(kind, "_type_", None) in ("d", ctypes.c_double)
    )
    assert says("architecture.md", r"\(and (\w+) doubles of the\s+task\)") == [str(doubles)]
    assert says("../examples/studies/presets/README.md", r"(?m)^\| \[`(\w+)`\]") == [*PRESETS]


def test_functions_of_libraries_return_what_is_said_of_them():
    """A declaration of ctypes that says int64 of a function without a value reads what is left in a register."""
    texts = [(build.cuda_dir() / source).read_text() for source in (*build.CPU_SOURCES, *build.TAPE_SOURCES)]
    kinds = {name: kind for kind, name in re.findall(r"(?m)^(?:extern \"C\" )?(\w+) (ks_\w+)\(", "\n".join(texts))}
    assert set(kinds) == {*build.CPU_FUNCTIONS, *build.TAPE_FUNCTIONS}
    for name, kind in kinds.items():
        assert kind == ("void" if name in build._NOTHING else "int64_t"), name


def test_pages_for_developers_name_what_is_in_the_files():
    """They say so of most files that they send a reader to."""
    for page, least in (("architecture.md", 5), ("changing.md", 20)):
        assert len(_NAMED_IN.findall((DOCS / page).read_text())) >= least


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "glossary.md"], ids=name)
def test_rates_say_per(page):
    """A rate of units "a decision" can be read in two ways."""
    assert not _AMBIGUOUS.findall(prose(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_registry_no_personal_path(page):
    # In two pieces each, as .ci/run looks for them in this file too.
    registries = ["py" + "pi.org", "pythonhosted" + ".org", "conda" + ".anaconda.org"]
    paths = [r"/(?:home|Users)/" + r"\w", "/ro" + "ot/", "/work" + "/", r"[A-Z]:\\Users"]
    assert not re.findall("|".join([*map(re.escape, registries), *paths]), page.read_text())


def test_no_placeholder_stays():
    for page in PAGES:
        assert not re.findall(r"\b(?:TODO|FIXME|XXX|TBD)\b", page.read_text()), page.name


# The site -------------------------------------------------------------------------------------------------------------


def study(entry: str) -> Path:
    """Return the page of what the site has as `studies/NAME`."""
    return ROOT / "examples" / entry / "README.md"


def toctree_entries(page: Path) -> set[Path]:
    """Return the pages, without their endings, that a page's toctrees list."""
    text = page.read_text()
    trees = [match.group(2) for match in _FENCE.finditer(text) if match.group(1).strip() == "{toctree}"]
    trees += re.findall(r"^\.\. toctree::\n((?:(?: +.*)?\n)+)", text + "\n", re.MULTILINE)
    lines = [re.sub(r".*<(.*)>", r"\1", line.strip()) for tree in trees for line in tree.splitlines()]
    found: set[Path] = set()
    for entry in (line for line in lines if line and not line.startswith(":")):
        globbed = [path.with_suffix("") for path in page.parent.glob(f"{entry}.*")]
        if entry.startswith("studies/"):  # which the build copies
            globbed = [path.with_suffix("") for path in STUDIES if path == study(entry)]
        found.update(path for path in globbed if path != page.with_suffix(""))
        if entry.startswith("gallery/"):  # which the build makes
            found.add(page.parent / entry)
        assert globbed or "*" in entry or entry.startswith("gallery/"), f"{name(page)} lists {entry}"
    return found


def test_every_page_is_on_the_site():
    """Each page is reached from docs/index.md by toctrees."""
    pages = {page.with_suffix(""): page for page in (*site_pages(".md"), *site_pages(".rst"), *STUDIES)}
    pages = {stem: page for stem, page in pages.items() if DOCS / "tutorials" not in page.parents}
    reached, pending = set(), [DOCS / "index"]
    while pending:
        stem = pending.pop()
        if stem in pages and stem not in reached:
            reached.add(stem)
            pending += toctree_entries(pages[stem])
    assert not {name(pages[stem]) for stem in set(pages) - reached}


def test_old_addresses_lead_to_pages():
    """The site has a page at each address that had one, which leads on to a heading that is there."""
    assigned = {node.targets[0].id: node.value for node in ast.parse((DOCS / "conf.py").read_text()).body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
    redirects = ast.literal_eval(assigned["redirects"])
    gone = {"default_market", "trading_preset", "continuous_preset", "presets", "clearing", "ppo_results", "self_play"}
    assert gone | {"many_learners", "own_environment", "trainers", "your_own_trader"} <= set(redirects)
    for old, new in redirects.items():
        target, _, anchor = new.partition("#")
        stem = target.removesuffix(".html")
        page = study(stem) if stem.startswith("studies/") else DOCS / f"{stem}.md"
        if old.startswith("gallery/"):  # which is made of scripts
            old, page = old.replace("gallery/", "tutorials/"), DOCS / "tutorials" / f"{stem}.py"
        assert not any((DOCS / f"{old}{ending}").exists() for ending in (".md", ".py")) and page.exists(), old
        assert not anchor or anchor in anchors(page), new


def test_every_environment_has_its_page():
    """A page names the environment's id, and so does the overview."""
    pages = "".join(page.read_text() for page in site_pages(".md") if page.parent.name == "environments")
    overview = (DOCS / "environments" / "index.md").read_text()
    for identity in (identity for identity in gymnasium.registry if identity.startswith("KineticSim/")):
        assert f'gymnasium.make("{identity}")' in pages, identity
        assert f"`{identity}`" in overview, identity


def test_written_pages_are_current():
    """`python -m scripts.pages.environments` writes them."""
    for page, text in environments.pages().items():
        assert (DOCS / "environments" / f"{page}.md").read_text() == text, page


def test_every_public_name_is_in_the_reference():
    reference = "".join(page.read_text() for page in (DOCS / "api").glob("*.rst"))
    for public in set(kineticsim_env.__all__) - {"__version__"}:
        assert re.search(rf"^\.\. auto\w+:: {public}(\(\))?$", reference, re.MULTILINE), public


def test_every_code_block_is_checked_by_somebody():
    """Python runs here, commands are looked at here, directives are Sphinx's; anything else is plain text."""
    for page in PAGES:
        for match in _FENCE.finditer(page.read_text()):
            language = match.group(1).strip()
            assert language in ("", "python", "bash", "text", "bibtex") or language.startswith("{"), name(page)


def test_tutorials_are_scripts_with_a_title_that_draw_something():
    """`make docs` runs them; here only what it would show too late."""
    files = sorted((DOCS / "tutorials").glob("*.py"))
    assert len(files) >= 3
    for file in files:
        docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
        title, line, *_ = docstring.splitlines()
        assert line == "=" * len(title), name(file)
        assert "plt.show()" in file.read_text(), name(file)


def test_make_docs_fails_on_warnings():
    recipe = (ROOT / "Makefile").read_text().partition("\ndocs:")[2].partition("\n\n")[0]
    assert " -W " in recipe
    configuration = (DOCS / "conf.py").read_text()
    assert "nitpicky = True" in configuration
    assert '"abort_on_example_error": True' in configuration
    assert "make docs" in (ROOT / ".ci" / "run").read_text()
