"""Which mutants: lines drawn by seed, Cosmic Ray's mutants of Python, and those of `CPP_OPERATORS` of the C++ headers.

Called by `__main__`.
"""

import ast
import collections
import contextlib
import difflib
import functools
import random
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDERS = ("model", "cpu", "tape", "warp", "lane")  # of cuda/: what tests run on a CPU
CPP_OPERATORS: dict[str, tuple[str, Any]] = {  # a pattern, and what it becomes
    "comparison": (
        r"(?<= )(<=|>=|==|!=|<|>)(?= )",
        {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    ),
    "arithmetic": (
        r"(?<= )(<<|>>|[-+*/%&|^])(?= )",
        {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&": "|", "|": "&", "^": "&", "<<": ">>", ">>": "<<"},
    ),
    "assignment": (r"(?<= )(\+=|-=|\|=|&=|\^=)(?= )", {"+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "^=": "|="}),
    "increment": (r"(\+\+|--)", {"++": "--", "--": "++"}),
    "logic": (r"(?<= )(&&|\|\|)(?= )", {"&&": "||", "||": "&&"}),
    "truth": (r"\b(true|false)\b", {"true": "false", "false": "true"}),
    "one more": (r"(?<![\w.])(\d+)(?=u?l?l?\b)(?!\.)", lambda found: str(int(found) + 1)),
    "one less": (r"(?<![\w.])([1-9]\d*)(?=u?l?l?\b)(?!\.)", lambda found: str(int(found) - 1)),
    "negation": (r"\bif (\(.+\))(?= \S|$)", lambda found: f"(!{found})"),
    "deletion": (r"^ +((?:continue|break|[\w.\[\]>-]+ [-+|&^*]?= [^;{}]+|[\w.:>-]+\([^;{}]*\));)$", lambda _: ";"),
}


def draw(python: int, cpp: int, seed: int) -> list[dict]:
    """Return mutants of lines that are all alike likely, with a third of spare ones for those that do not compile."""
    random_ = random.Random(seed)
    drawn: list[dict] = []
    files = {"python": sorted((ROOT / "kineticsim_env").rglob("*.py")), "cpp": []}
    for folder in FOLDERS:
        files["cpp"] += sorted(path for path in (ROOT / "cuda" / folder).iterdir() if path.suffix in (".h", ".cuh"))
    built = ("market_cpu.cpp", "operators.cpp", "launching.h", "jax_calls.cpp", "plan.cpp", "tape/tape.cpp")
    files["cpp"] += [ROOT / "cuda" / name for name in built]
    for language, number in (("python", python), ("cpp", cpp)):
        lines = [(path, line) for path in files[language] for line in range(1, len(path.read_text().splitlines()) + 1)]
        seen: set[tuple] = set()
        wanted = number if language == "python" else number + number // 3
        while len(seen) < wanted:
            path, line = random_.choice(lines)
            mutants = (python_mutants if language == "python" else cpp_mutants)(path, line)
            positions = sorted({position for position, _, _ in mutants})
            if positions and (path, line) not in seen:
                seen.add((path, line))
                position = random_.choice(positions)
                _, operator, text = random_.choice([each for each in mutants if each[0] == position])
                drawn.append(
                    {"file": str(path.relative_to(ROOT)), "line": line, "operator": operator} | change(path, text)
                )
    return drawn


def change(path: Path, text: str) -> dict:
    """Return the lines that a mutant replaces, and those it puts there."""
    old, new = path.read_text().splitlines(), text.splitlines()
    blocks = [block for block in difflib.SequenceMatcher(None, old, new, False).get_opcodes() if block[0] != "equal"]
    first, last = blocks[0], blocks[-1]
    return {"at": first[1] + 1, "old": old[first[1] : last[2]], "new": new[first[3] : last[4]]}


@functools.cache
def _by_line(path: Path) -> dict[int, list[tuple]]:
    """Return Cosmic Ray's mutants of a file by line: a position, an operator, and which of the operator's it is."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider
    from cosmic_ray.plugins import get_operator

    source = path.read_text()
    left_out = []  # annotations, which no test runs, and assertions
    for node in ast.walk(ast.parse(source)):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            left_out += [part] if part is not None else []
        left_out += [node] if isinstance(node, ast.Assert) else []
    ranges = [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in left_out]
    nodes = list(ast_nodes(get_ast(source)))
    found = collections.defaultdict(list)
    for name in OperatorProvider():
        if name.startswith("Variable"):  # these want names
            continue
        operator, occurrence = get_operator(f"core/{name}")(), 0
        for node in nodes:
            for position, _ in operator.mutation_positions(node):
                if not any(first <= position < last for first, last in ranges):
                    found[position[0]].append((position, name, occurrence))
                occurrence += 1
    return found


def python_mutants(path: Path, line: int) -> list[tuple]:
    """Return the mutants of a line: where in the file, the operator, and the file's text."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source, result = path.read_text(), []
    for position, name, occurrence in _by_line(path)[line]:
        text = mutate_code(source, get_operator(f"core/{name}")(), occurrence)
        with contextlib.suppress(SyntaxError):
            compile(text, path, "exec")
            if ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)):
                result.append((position, name, text))
    return result


def cpp_mutants(path: Path, line: int) -> list[tuple]:
    """Return the same of a line of C++: of its code, not of comments, directives, assertions and strings."""
    lines = path.read_text().splitlines(keepends=True)
    code = lines[line - 1].split("//")[0].rstrip()
    if re.search(r'^\s*#|static_assert|"|^template|^\s*using|\\$', code):
        return []
    result = []
    for name, (pattern, becomes) in CPP_OPERATORS.items():
        for match in re.finditer(pattern, code):
            new = becomes(match[1]) if callable(becomes) else becomes[match[1]]
            mutated = code[: match.start(1)] + new + code[match.end(1) :] + lines[line - 1][len(code) :]
            result.append(((line, match.start(1)), name, "".join([*lines[: line - 1], mutated, *lines[line:]])))
    return result
