"""No module of the package imports itself by way of others."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kineticsim_env"
MODULES = {
    ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


parsed = functools.cache(ast.parse)


def imports(text: str, *, in_calls: bool, for_types: bool) -> set[str]:
    """Return what a source imports of the package when it is imported itself, and by choice later or for types only."""
    found = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.expr):  # holds no statement
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for part in [*(node.body if for_types else []), *node.orelse]:
                visit(part)
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not in_calls:
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in MODULES else str(node.module) for name in names)
        for part in ast.iter_child_nodes(node):
            visit(part)

    visit(parsed(text))
    return found & MODULES.keys()


def circles(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Yield the sets of modules, each of which leads to all others of its set; one that imports itself is one, too."""

    def reached(module: str) -> set[str]:
        seen, ahead = set(), [module]
        while ahead:
            new = graph[ahead.pop()] - seen
            seen |= new
            ahead += new
        return seen

    leads = {module: reached(module) for module in graph}
    left = {module for module in graph if module in leads[module]}
    while left:
        module = left.pop()
        circle = {other for other in leads[module] if module in leads[other]}
        left -= circle
        yield circle


def found(**kinds: bool) -> set[frozenset[str]]:
    graph = {module: imports(path.read_text(), **kinds) for module, path in MODULES.items()}
    return {frozenset(circle) for circle in circles(graph)}


@pytest.mark.parametrize("in_calls", [False, True])
@pytest.mark.parametrize("for_types", [False, True])
def test_no_module_imports_itself(in_calls, for_types):
    """Neither when modules are imported, nor later in calls, nor for type checkers."""
    assert found(in_calls=in_calls, for_types=for_types) == set()


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"f"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["f"]]


def test_every_kind_of_import_is_seen():
    text = (
        "import kineticsim_env.config\nfrom kineticsim_env.envs import core\n"
        "if TYPE_CHECKING:\n    from kineticsim_env.envs.settings import EnvSettings\n"
        "else:\n    import kineticsim_env.cli\n"
        "def late():\n    from kineticsim_env.simulator import Simulator\n"
    )
    now = {"kineticsim_env.config", "kineticsim_env.envs.core", "kineticsim_env.cli"}
    assert imports(text, in_calls=False, for_types=False) == now
    assert imports(text, in_calls=True, for_types=False) == now | {"kineticsim_env.simulator"}
    assert imports(text, in_calls=False, for_types=True) == now | {"kineticsim_env.envs.settings"}
