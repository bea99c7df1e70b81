"""Traders that somebody writes to break the language: each means the same in both forms, and none breaks a compiler."""

# ruff: noqa: E501 (a program per line)

import ast
import enum
import inspect
import keyword
import linecache
import re
import shlex
import subprocess

import numpy as np
import pytest
from thorough import THOROUGH

import kineticsim_env as ks
from kineticsim_env.agents.language import read
from kineticsim_env.runtime.agent_library import compile_classes
from kineticsim_env.runtime.build import cuda_dir
from kineticsim_env.runtime.cxx import EXTRA_FLAGS, find_cxx
from tests.agent_programs import HEADER, LOWEST, NO_ORDER, VOCABULARY, compiled, module_of, played

needs_compiler = pytest.mark.skipif(find_cxx() is None, reason="no C++ compiler")
KEYWORDS = sorted(  # those of C++ up to C++26 that Python lets a name be
    set(
        """
        alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t compl concept const
        consteval constexpr constinit const_cast contract_assert co_await co_return co_yield decltype default delete do
        double dynamic_cast enum explicit export extern false float friend goto inline int long mutable namespace new
        noexcept not_eq nullptr operator or_eq private protected public register reinterpret_cast requires short signed
        sizeof static static_assert static_cast struct switch template this thread_local throw true typedef typeid
        typename union unsigned using virtual void volatile wchar_t xor xor_eq restrict near far interface
        """.split()
    )
)
NUMBERS = [11, 1, 5, 6, 100, 200]  # mid2, ret, a, b, m0, m1
TRADER = "def trader(market, own, draw):\n"


class Side(enum.IntEnum):
    BUY = 1


class Liar(int):
    """A number whose text is C++."""

    def __str__(self):
        return '0); system("true"'

    __repr__ = __format__ = __str__

    def __index__(self):
        return 99

    __int__ = __index__


class Unlikely(float):
    """A probability that says it is one."""

    def __le__(self, other):
        return True

    __ge__ = __le__


GIVEN = {"BUY": Side.BUY, "OF_NUMPY": np.int64(7), "LIAR": Liar(3), "THING": object(), "ARRAY": np.arange(3)}
TERMS = " + ".join(["own.a"] * 75)
ELIFS = "".join(f"    elif own.a == {n}: x = {n}\n" for n in range(2, 70))
DEEP = "".join("    " * n + f"if own.a < {10 + n}:\n" for n in range(1, 19)) + "    " * 19 + "return order(1, 2, 3)\n"
PROGRAMS = {  # and the side, tick and quantity that they ask for; m0 and m1 after them
    "a docstring alone": (TRADER + "    '''*/ } #error \\n'''\n", NO_ORDER[:3]),
    "dots after it": (TRADER + "    pass\n", NO_ORDER[:3]),
    "a comment in C++'s way": (TRADER + "    # */ \\\n    return order(1, 2, 3)  # \\\n", (1, 2, 3)),
    "keywords as names": (
        TRADER
        + "".join(f"    {name} = {n}\n" for n, name in enumerate(KEYWORDS))
        + "    return order(int, double, auto)\n",
        tuple(KEYWORDS.index(name) for name in ("int", "double", "auto")),
    ),
    "our names": (
        TRADER + "    v_x = 1; x = 2; f_trader_0 = 3; i_1 = 4; c_1 = 5; agent = 6; ks = 7; no_order_ = 8; u_0 = 9\n"
        "    for Order in range(3): Int32 = Order; truth = 1\n    x += 0 < own.a < 9\n"
        "    return order(v_x + x + agent + ks, i_1 * 10 + c_1, Int32 + truth)\n",
        (17, 45, 3),
    ),
    "macros as names": (
        TRADER + "    NULL = 1; EOF = 2; INT_MAX = 3; KS_RULE = 4; assert_ = 5; linux = 6; __LINE__ = 7\n"
        "    return order(NULL + EOF, INT_MAX + KS_RULE, linux + __LINE__)\n",
        (3, 7, 13),
    ),
    "a macro as a function": (
        "def M_PI(x): return x + 1\ndef M_SQRT1(x): return M_PI(x) * 2\n" + TRADER + "    return order(M_PI(1), M_SQRT1(2), 3)\n",
        (2, 6, 3),
    ),
    "letters of the world": (
        "def größer(ß): return ß + 1\ndef ℌ(x): return größer(x)\n"
        + TRADER + "    é = 1\n    e = 2\n    变量 = 3\n    ﬁ = 4\n    return order(é, e + 变量, H(fi))\n",
        (1, 5, 5),
    ),
    "a local with a function's name": (
        "def helper(x): return x + 1\ndef other(helper): return helper * 2\n" + TRADER
        + "    world = 3\n    abs = world + 1\n    return order(other(2), abs, world)\n",
        (4, 4, 3),
    ),
    "an argument with a constant's name": (
        "x = 77\ndef helper(x, world): return x + world\n" + TRADER + "    return order(helper(1, 2), x, 3)\n", (3, 77, 3),
    ),
    "a function of the arguments' names": (
        "def helper(market, own, draw): return market + own - draw\n" + TRADER + "    return order(helper(1, 2, 3), 2, 3)\n",
        (0, 2, 3),
    ),
    "arguments with other names": (
        "def trader(own, draw, market):\n    own_ = own.mid2\n    return order(own_, draw.a, market.coin() < 9)\n", (11, 5, 1),
    ),
    "a closure": (
        "def around(step):\n    def inner(x): return x + step\n    def trader(market, own, draw):\n"
        "        return order(inner(1), step, later)\n    later = 9\n    return trader\ntrader = around(4)\n",
        (5, 4, 9),
    ),
    "two closures of one text": (
        "def around(step):\n    def inner(x): return x + step\n    return inner\none = around(10)\ntwo = around(20)\n"
        + TRADER + "    return order(one(1), two(1), one(two(1)))\n",
        (11, 21, 31),
    ),
    "two functions of one name": (
        "def helper(x): return x + 1\nfirst_helper = helper\ndef helper(x): return x + 2\n" + TRADER
        + "    return order(helper(1), first_helper(1), 3)\n",
        (3, 2, 3),
    ),
    "a decorator that takes the place": (
        "def twice(f):\n    def inner(x): return 2 * f(x)\n    return inner\n@twice\n@twice\ndef helper(x): return x + 1\n"
        + TRADER + "    return order(helper(1), 2, 3)\n",
        (8, 2, 3),
    ),
    "a decorator that wraps": (
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def inner(x): return 2 * f(x)\n    return inner\n"
        "@twice\ndef helper(x): return x + 1\n" + TRADER + "    return order(helper(1), 2, 3)\n",
        (4, 2, 3),
    ),
    "decorators of several lines": (
        "def marked(*a, **k): return lambda f: f\n@marked(\n    lambda x: (\n x), '''\n@\n''')\n# comment\n@marked()\n"
        + TRADER + "    return order(1, 2, 3)\n",
        (1, 2, 3),
    ),
    "a name that lies": (
        TRADER + "    return order(helper(1), 2, 3)\ndef helper(x): return x + 1\n"
        "helper.__name__ = 'x; }'\nhelper.__qualname__ = '#error'\ntrader.__name__ = '*/'\n",
        (2, 2, 3),
    ),
    "a wrapped function that lies": (
        "def other(x): return x * 100\ndef helper(x): return x + 1\nhelper.__wrapped__ = other\nhelper.__signature__ = 3\n"
        + TRADER + "    return order(helper(1), 2, 3)\n",
        (2, 2, 3),
    ),
    "within a class, with a text at the margin": (
        "class Traders:\n    step = 3\n    def trader(market, own, draw):\n        '''Text\nat the margin.\n'''\n"
        "# a comment there\n        return order(1, (2 +\n1), 3)\ntrader = Traders.trader\n",
        (1, 3, 3),
    ),
    "annotations and types": (
        "def helper(x: int) -> [1, 2]: return x\ndef trader(market: int, own: 'a', draw: 3) -> None:\n"
        "    return order(helper(1), 2, 3)\n",
        (1, 2, 3),
    ),
    "numbers of other kinds": (TRADER + "    return order(BUY, OF_NUMPY, LIAR)\n", (1, 7, 3)),
    "True and False": (TRADER + "    return order(-True, True + True, False)\n", (-1, 2, 0)),
    "the lowest number": (TRADER + "    return order(-2147483648, - -2147483648, -2147483647 - 1)\n", (LOWEST,) * 3),
    "a long sum": (TRADER + f"    return order(1, {TERMS}, 3)\n", (1, 75 * 5, 3)),
    "a long sum on the right": (TRADER + f"    return order(1, {'own.a + (' * 75}0{')' * 75}, 3)\n", (1, 75 * 5, 3)),
    "a long choice": (
        TRADER + f"    return order(1, {''.join(f'{n} if own.a == {n} else ' for n in range(75))}0, 3)\n", (1, 5, 3),
    ),
    "deep nots": (TRADER + f"    return order(1, {'not (' * 76}0{')' * 76}, 3)\n", (1, 0, 3)),
    "deep comparisons": (TRADER + f"    return order(1, {'0 <= (' * 77}0{') <= 1' * 77}, 3)\n", (1, 1, 3)),
    "deep ands": (TRADER + f"    return order(1, {'1 and (' * 38}0{') or 0' * 38}, 3)\n", (1, 0, 3)),
    "a long minimum": (TRADER + f"    return order(1, min({', '.join(map(str, range(9, 84)))}), 3)\n", (1, 9, 3)),
    "a long or": (TRADER + f"    return order(1, {'own.a == 9 or ' * 200}7, 3)\n", (1, 1, 3)),
    "a long chain": (TRADER + f"    return order(1, own.a{' == own.a' * 200}, 3)\n", (1, 1, 3)),
    "many elifs": (TRADER + f"    if own.a == 1: x = 1\n{ELIFS}    else: x = 0\n    return order(1, x, 3)\n", (1, 5, 3)),
    "deep ifs": (TRADER + DEEP, (1, 2, 3)),
    "chains within chains": (
        TRADER + "    x = 1 < (2 < own.a < 9) + 1 < (own.a < own.b < 7) + 2\n    return order(x, (1 < 2 < 3) < 2 < 3, 3)\n",
        (1, 1, 3),
    ),
    "a chain in a loop": (
        TRADER + "    n = 0\n    for i in range(10):\n        n += 2 < i * i <= own.a * own.a < 26\n    return order(n, 2, 3)\n",
        (4, 2, 3),
    ),
    "one line": ("def trader(market, own, draw): x = 1; return order(x, 2, 3); x = 2\n", (1, 2, 3)),
    "tabs": ("if True:\n\tdef trader(market, own, draw):\n\t\treturn order(1, 2, 3)\n", (1, 2, 3)),
    "orders that are chosen": (
        TRADER + "    return None if own.a > 5 else order(1, 2, 3) if own.b == 6 else no_order()\n", (1, 2, 3),
    ),
    "memory under a sign": (
        TRADER + "    own.m0 -= own.m0 - 100\n    if own.m0: own.m1 -= 0\n    return order(own.m0, own.m1, 3)\n", (100, 200, 3),
    ),
    "a return in a loop": (
        TRADER + "    for i in range(3):\n        return order(1, 2, i)\n    return order(9, 9, 9)\n", (1, 2, 0),
    ),
    "a long name": (TRADER + f"    {'x' * 2000} = 3\n    return order(1, 2, {'x' * 2000})\n", (1, 2, 3)),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("traders"), {}
    for place, (name, (text, _)) in enumerate(PROGRAMS.items()):
        given = "".join(
            f"from tests.test_agent_language_attacks import GIVEN; {each} = GIVEN[{each!r}]\n" for each in GIVEN
        )
        found[name] = read(module_of(HEADER + given + text, folder, f"hostile_{place}").trader, VOCABULARY)
    return found


@pytest.fixture(scope="module")
def library(programs, tmp_path_factory):
    return compiled(programs.values(), tmp_path_factory.mktemp("library"), "-O1")


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_means_the_same_in_both_forms(name, programs, library):
    expected = list(PROGRAMS[name][1])
    found = library.run(list(PROGRAMS).index(name), NUMBERS, 0)
    assert found[:3] == expected and found[4:] == NUMBERS[4:]
    assert played(programs[name], NUMBERS, 0) == found


OURS = """KS_RULE Order Market market Own own Draw draw order_of no_order min_of max_of agent add subtract multiply negate
absolute divide_down modulo shift_left shift_right const return if else for int32_t""".split()


def test_no_text_of_a_user_is_in_the_program(programs):
    words = {*OURS, *VOCABULARY.seen, *VOCABULARY.prices, *VOCABULARY.draws}
    for name, program in programs.items():
        assert re.fullmatch(r"[\w\s(){}&|^<>=!?:;,.+*-]*", program.text, re.ASCII), name
        assert all(
            word in words or word[:2] in ("v_", "w_", "i_", "c_", "u_", "f_")
            for word in re.findall(r"[A-Za-z_]\w*", program.text)
        )
        brackets = deepest = 0
        for sign in program.text:
            brackets += (sign in "({") - (sign in ")}")
            deepest = max(deepest, brackets)
        assert brackets == 0 and deepest < 250, name  # clang takes 256


@pytest.fixture(scope="module")
def names_of_cpp(tmp_path_factory):
    """Keywords of C++, identifiers of the engines' headers, macros of the compiler and of the C library: all, or a tenth."""
    folder = tmp_path_factory.mktemp("macros")
    headers = sorted((cuda_dir() / "model").glob("*.h"))
    found = {*KEYWORDS, "int32_t", "errno", "assert", "linux", "unix", "minor", "stdin"}
    ours = set().union(*(re.findall(r"[A-Za-z_]\w*", header.read_text()) for header in headers)) - found
    (folder / "macros.cpp").write_text('#include "model/agents.h"\n#include <cmath>\n#include <cstdio>\n')
    macros = set()
    for standard in ("c++17", "gnu++20"):
        words = [*shlex.split(find_cxx()), f"-std={standard}", "-dM", "-E", "-I", str(cuda_dir()), "macros.cpp"]
        listed = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
        macros |= set(re.findall(r"(?m)^#define (\w+)", listed))
    everything = found | ours | macros
    assert {"AgentView", "KS_RULE", "EOF", "NULL", "unix", "int"} <= everything and len(everything) > 1000
    assert not {name for name in everything if re.match(r"[vwficu]_", name)}  # prefixes of what programs call theirs
    of_many = [sorted(names)[:: 1 if THOROUGH else 10] for names in (ours, macros)]
    return sorted(found.union(*of_many, ("order_of", "side", "agent", "own")) - set(keyword.kwlist))


def _rows(names, length=80):
    return [names[first : first + length] for first in range(0, len(names), length)]


@needs_compiler
def test_names_of_cpp_can_be_local_names_and_names_of_the_module(names_of_cpp, tmp_path):
    names = [name for name in names_of_cpp if name not in ("market", "own", "draw", "order", "no_order", "trader")]
    read_of, expected = [], []
    for place, row in enumerate(_rows(names)):
        add_all = "".join(f"    total_ += {n} * {name}\n" for n, name in enumerate(row))
        constants = "".join(f"{name} = {n + 3}\n" for n, name in enumerate(row))
        local = "".join(f"    {name} = {n + 3}\n" for n, name in enumerate(row))
        functions = "".join(f"def {name}(x): return x + {n + 3}\n" for n, name in enumerate(row))
        call_all = "".join(f"    total_ += {n} * {name}(0)\n" for n, name in enumerate(row))
        start, end = TRADER + "    total_ = 0\n", "    return order(1, total_, 3)\n"
        texts = (start + local + add_all + end, constants + start + add_all + end, functions + start + call_all + end)
        for form, text in zip("lcf", texts, strict=True):
            read_of.append(read(module_of(HEADER + text, tmp_path, f"cpp_{form}{place}").trader, VOCABULARY))
            expected.append([1, sum(n * (n + 3) for n in range(len(row))), 3])
    library = compiled(read_of, tmp_path, "-O0")
    for number, (program, order) in enumerate(zip(read_of, expected, strict=True)):
        found = library.run(number, NUMBERS, 0)
        assert found[:3] == order and played(program, NUMBERS, 0) == found


@needs_compiler
def test_names_of_cpp_can_be_parameters_and_memory(names_of_cpp, tmp_path, monkeypatch):
    names = [name for name in names_of_cpp if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)]
    # `index` is every agent's, and `count` every mix's; `agent` takes its own arguments.
    names = [name for name in names if name not in (*inspect.signature(ks.agent).parameters, "index", "count")]
    assert {"int32_t", "int", "errno", "linux", "order_of", "side", "agent", "own"} <= set(names)
    kinds = []
    for turned in (False, True):
        for place, row in enumerate(_rows(names, 120)):
            parameters, memory = (row[::2], row[1::2]) if not turned else (row[1::2], row[::2])
            lines = [f"    total_ += {n + 1} * own.{name}\n" for n, name in enumerate(parameters)]
            lines += [f"    own.{name} += {n + 1}\n    total_ -= own.{name}\n" for n, name in enumerate(memory)]
            text = "import kineticsim_env as ks\n" + f"def trader_{place}(market, own, draw):\n    total_ = 0\n"
            text += "".join(lines) + "    return ks.order(total_, 1 + total_ % 30, 1 + total_ % 7)\n"
            module = module_of(text, tmp_path, f"cpp_own_{int(turned)}_{place}")
            starts = {name: 5 * n for n, name in enumerate(memory)}
            given = {name: 3 + n * n for n, name in enumerate(parameters)}
            kinds.append(ks.agent(memory=starts, **given)(getattr(module, f"trader_{place}")))
    with monkeypatch.context() as patch:
        patch.setenv(EXTRA_FLAGS, "-O0")  # seconds less
        compile_classes(kinds)
    for row in _rows(kinds, 8):
        for number, kind in enumerate(row):
            config = ks.MarketConfig.preset("paper", num_levels=32, init_price=16, agents={kind: 1 + number})
            sims = [ks.Simulator(config, 2, engine=engine, seed=3) for engine in ("numpy", "cpu")]
            for sim in sims:
                sim.run(3)
            for name in ("agent_memory", "bid", "ask"):
                assert sims[0].tensors[name].tolist() == sims[1].tensors[name].tolist(), (kind.name, name)


@needs_compiler
def test_names_of_cpp_beside_a_body_in_cpp_are_refused_by_name(tmp_path):
    """A user's own C++ has the names as they are."""
    text = "def trader(market, own, draw):\n    return None\n"
    for name in ("int32_t", "int", "const"):
        kind = ks.agent(cxx="return no_order();", **{name: 1})(module_of(text, tmp_path, "own_cxx").trader)
        with pytest.raises(
            ValueError, match="cxx: class 'trader' does not compile .* has a name that C\\+\\+ has for itself"
        ):
            compile_classes([kind])


def test_constants_are_those_of_the_declaration(tmp_path):
    module = module_of(HEADER + "LEVEL = 3\n" + TRADER + "    return order(LEVEL, world.LATE, 3)\n", tmp_path, "level")
    module.world.LATE = 4
    program = read(module.trader, VOCABULARY)
    module.LEVEL, module.world.LATE = 5, 6
    assert played(program, NUMBERS, 0)[:3] == [3, 4, 3] and "order_of(3, 4, 3, 0)" in program.text
    del module.world.LATE


def test_a_probability_of_another_class(tmp_path):
    text = HEADER + "CHANCE = None\n" + TRADER + "    return order(1, 2, draw.chance(CHANCE))\n"
    module = module_of(text, tmp_path, "chances")
    module.CHANCE = np.float64(0.25)
    program = read(module.trader, VOCABULARY)
    assert "draw.chance(4194304, 0)" in program.text
    assert played(program, NUMBERS, 2**22 - 1)[2] == 1 and played(program, NUMBERS, 2**22)[2] == 0
    module.CHANCE = Unlikely(1e300)
    with pytest.raises(SyntaxError, match="expected 0.0 to 1.0.*got the probability 1e\\+300"):
        read(module.trader, VOCABULARY)


def test_a_function_of_a_notebook():
    """Its cell has no file, and each of the cell's statements is compiled alone."""
    cell, path = (
        "import tests.agent_programs as world\nSTEP = 2\n" + TRADER + "    return world.order(1, STEP, 3)\n",
        "<cell 7>",
    )
    linecache.cache[path] = (len(cell), None, cell.splitlines(keepends=True), path)
    names = {}
    for statement in ast.parse(cell).body:
        exec(compile(ast.Module(body=[statement], type_ignores=[]), path, "exec"), names)
    assert played(read(names["trader"], VOCABULARY), NUMBERS, 0)[:3] == [1, 2, 3]


def test_what_surrounds_a_function_may_be_anything(tmp_path):
    """Things that cannot be compared, hashed or called are named in a trader's module."""
    text = HEADER + "import numpy as np\nARRAY = np.arange(3)\n" + TRADER + "    return order(1, 2, {})\n"
    for place, wrong in enumerate(("ARRAY", "ARRAY(1)", "np.arange(3)", "np.int32", "np.nowhere", "ARRAY.size", "np")):
        module = module_of(text.format(wrong), tmp_path, f"anything_{place}")
        with pytest.raises(SyntaxError, match="^trader: "):
            read(module.trader, VOCABULARY)


def test_a_closure_without_a_value_yet(tmp_path):
    text = (
        HEADER
        + "def around(find):\n    def trader(market, own, draw): return order(1, 2, late)\n    find(trader)\n    late = 3\n"
    )
    module = module_of(text, tmp_path, "late")
    with pytest.raises(SyntaxError, match="got 'late', which is no whole number"):
        module.around(lambda trader: read(trader, VOCABULARY))
