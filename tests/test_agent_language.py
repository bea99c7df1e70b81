"""The language of traders: its compiled form and its form on Int32 give the same numbers, and the right ones."""

import random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from thorough import examples

from kineticsim_env.agents.language import read
from kineticsim_env.runtime import nvcc
from kineticsim_env.runtime.cxx import find_cxx
from tests.agent_programs import (
    HEADER,
    HIGHEST,
    LOWEST,
    VOCABULARY,
    Writer,
    compiled,
    compiled_for_gpu,
    module_of,
    number,
    played,
)

needs_compiler = pytest.mark.skipif(find_cxx() is None, reason="no C++ compiler")
needs_nvcc = pytest.mark.skipif(nvcc.find() is None, reason="no nvcc")
PROGRAMS, INPUTS = examples(300), 20


class Drawn(NamedTuple):
    texts: list
    programs: list
    questions: list  # of each program: what its numbers and its word are, several times
    answers: list  # its order and its memory after it, in Python


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Random programs with random inputs, and what they come to on Int32."""
    texts, draws = [], []

    @settings(
        max_examples=PROGRAMS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=True))
    def collect(draw):
        texts.append(Writer(draw).trader(f"trader_{len(texts)}"))
        draws.append(draw)

    collect()
    module = module_of(HEADER + "\n\n".join(texts), tmp_path_factory.mktemp("drawn"), "random_traders")
    programs = [read(getattr(module, f"trader_{place}"), VOCABULARY) for place in range(len(texts))]
    questions = [[([number(draw) for _ in range(6)], draw.getrandbits(64)) for _ in range(INPUTS)] for draw in draws]
    answers = [[played(program, *each) for each in asked] for program, asked in zip(programs, questions, strict=True)]
    assert len(programs) == PROGRAMS
    assert len({tuple(each) for found in answers for each in found}) > PROGRAMS * INPUTS / 2  # not all the same
    return Drawn(texts, programs, questions, answers)


@pytest.mark.parametrize(
    "compile_all",
    [
        pytest.param(lambda programs, folder: compiled(programs, folder, "-O1"), marks=needs_compiler, id="core"),
        pytest.param(compiled_for_gpu, marks=(pytest.mark.gpu, needs_nvcc), id="gpu"),
    ],
)
def test_random_programs_give_the_same_numbers_in_both_forms(drawn, compile_all, tmp_path):
    library = compile_all(drawn.programs, tmp_path)
    for place, (text, asked, found) in enumerate(zip(drawn.texts, drawn.questions, drawn.answers, strict=True)):
        for (numbers, word), answer in zip(asked, found, strict=True):
            assert library.run(place, numbers, word) == answer, f"{numbers}, {word}\n{text}"


class Known(NamedTuple):
    expression: str
    answers: dict  # of x and y


KNOWN = [
    Known("x + y", {(HIGHEST, 1): LOWEST, (LOWEST, -1): HIGHEST, (LOWEST, LOWEST): 0, (-3, 5): 2}),
    Known("x - y", {(LOWEST, 1): HIGHEST, (0, LOWEST): LOWEST, (HIGHEST, -1): LOWEST, (3, 5): -2}),
    Known(
        "x * y",
        {(65536, 65536): 0, (46341, 46341): -2147479015, (LOWEST, -1): LOWEST, (HIGHEST, HIGHEST): 1, (HIGHEST, 2): -2},
    ),
    Known("x // y", {(7, 2): 3, (-7, 2): -4, (7, -2): -4, (-7, -2): 3, (6, 3): 2, (-6, 3): -2, (6, -3): -2}),
    Known("x // y", {(-6, -3): 2, (1, 2): 0, (-1, 2): -1, (1, -2): -1, (-1, -2): 0, (0, 5): 0, (0, -5): 0}),
    Known("x // y", {(7, 0): 0, (-7, 0): 0, (0, 0): 0, (LOWEST, 0): 0, (LOWEST, -1): LOWEST, (LOWEST, 1): LOWEST}),
    Known("x // y", {(LOWEST, 2): -(2**30), (LOWEST, HIGHEST): -2, (HIGHEST, LOWEST): -1, (LOWEST, LOWEST): 1}),
    Known("x // y", {(HIGHEST, -1): -HIGHEST, (LOWEST, -2): 2**30, (HIGHEST, 2): 2**30 - 1}),
    Known("x % y", {(7, 2): 1, (-7, 2): 1, (7, -2): -1, (-7, -2): -1, (6, 3): 0, (-6, 3): 0, (6, -3): 0}),
    Known("x % y", {(7, 0): 0, (-7, 0): 0, (LOWEST, 0): 0, (LOWEST, -1): 0, (LOWEST, 1): 0, (5, -1): 0}),
    Known("x % y", {(LOWEST, HIGHEST): HIGHEST - 1, (HIGHEST, LOWEST): -1, (LOWEST, LOWEST): 0, (1, -3): -2}),
    Known("x << y", {(1, 31): LOWEST, (1, 32): 1, (1, 33): 2, (1, -1): LOWEST, (3, 31): LOWEST, (-1, 4): -16}),
    Known("x << y", {(5, LOWEST): 5, (1, HIGHEST): LOWEST, (HIGHEST, 1): -2, (1, -32): 1, (0, 7): 0}),
    Known("x >> y", {(-1, 1): -1, (-8, 1): -4, (-7, 1): -4, (7, 1): 3, (LOWEST, 31): -1, (HIGHEST, 31): 0}),
    Known("x >> y", {(5, 32): 5, (5, 33): 2, (5, -1): 0, (-5, -1): -1, (-5, LOWEST): -5}),
    Known("x & y", {(12, 10): 8, (-1, 255): 255, (LOWEST, HIGHEST): 0, (-4, 6): 4}),
    Known("x | y", {(12, 10): 14, (LOWEST, HIGHEST): -1, (-4, 1): -3}),
    Known("x ^ y", {(12, 10): 6, (-1, HIGHEST): LOWEST, (-1, -1): 0}),
    Known("-x", {(5, 0): -5, (LOWEST, 0): LOWEST, (HIGHEST, 0): -HIGHEST}),
    Known("+x", {(5, 0): 5, (LOWEST, 0): LOWEST}),
    Known("abs(x)", {(5, 0): 5, (-5, 0): 5, (LOWEST, 0): LOWEST, (LOWEST + 1, 0): HIGHEST}),
    Known("min(x, y)", {(LOWEST, HIGHEST): LOWEST, (3, -3): -3, (-1, 0): -1}),
    Known("max(x, y)", {(LOWEST, HIGHEST): HIGHEST, (3, -3): 3, (-1, 0): 0}),
    Known("min(x, y, 4, -4)", {(5, 6): -4, (-5, 6): -5}),
    Known("max(4, -4, x, y)", {(5, 6): 6, (-5, -6): 4}),
    Known("x < y", {(LOWEST, HIGHEST): 1, (HIGHEST, LOWEST): 0, (2, 2): 0}),
    Known("x <= y", {(LOWEST, HIGHEST): 1, (3, 2): 0, (2, 2): 1}),
    Known("x > y", {(LOWEST, HIGHEST): 0, (HIGHEST, LOWEST): 1, (2, 2): 0}),
    Known("x >= y", {(LOWEST, HIGHEST): 0, (3, 2): 1, (2, 2): 1}),
    Known("x == y", {(LOWEST, LOWEST): 1, (LOWEST, HIGHEST): 0}),
    Known("x != y", {(LOWEST, LOWEST): 0, (LOWEST, HIGHEST): 1}),
    Known("0 < x < y", {(1, 2): 1, (2, 1): 0, (-1, 5): 0, (5, 5): 0}),
    Known("3 > x != y <= 7", {(2, 7): 1, (2, 2): 0, (2, 8): 0, (3, 1): 0}),
    Known("(0 < x) < y", {(-5, 1): 1, (5, 1): 0}),  # is not 0 < x < y
    Known("0 < abs(x) == y", {(-5, 5): 1, (0, 0): 0, (5, -5): 0}),
    Known("x and y", {(2, 4): 1, (2, 0): 0, (0, 4): 0, (LOWEST, -1): 1}),  # Python's own gives 4
    Known("x or y", {(2, 4): 1, (0, 4): 1, (0, 0): 0}),
    Known("(x or y) + (x and y)", {(2, 4): 2, (0, 4): 1}),
    Known("not x", {(0, 0): 1, (1, 0): 0, (LOWEST, 0): 0}),
    Known("not x == y", {(1, 1): 0, (1, 2): 1}),
    Known("x if y else -1", {(5, 2): 5, (5, 0): -1, (5, LOWEST): 5}),
    Known("x + 2 * y - -3", {(1, 2): 8}),
    Known("x - y - 1", {(10, 3): 6}),
    Known("-x // y", {(7, 2): -4}),
    Known("-(x // y)", {(7, 2): -3}),
    Known("-7 // 2 + -7 % 2", {(0, 0): -3}),
    Known("x + 1 << y & 6", {(2, 1): 6}),
    Known("-2147483648 + x", {(0, 0): LOWEST, (-1, 0): HIGHEST}),
    Known("- -2147483648", {(0, 0): LOWEST}),
    Known("2147483647 + True + False", {(0, 0): LOWEST}),
    Known("0b1010 + 0o17 + 0xF_F", {(0, 0): 280}),
]
FLOWS = {  # bodies of a function of x and y that returns a number
    "a loop's name keeps its last value": ("    for i in range(x_and, 9, 3): pass\n    return i", {(0, 0): 7}),
    "a loop's name may be written": ("    n = 0\n    for i in range(4):\n        i *= 9; n += i\n    return n + i",
                                     {(0, 0): 81}),
    "an empty loop changes nothing": ("    i = 5\n    for i in range(3, 3): x = 9\n    return i + x", {(1, 0): 6}),
    "steps down": ("    n = 0\n    for i in range(7, -3, -4): n = n * 10 + i\n    return n", {(0, 0): 729}),
    "steps over the edge": ("    for i in range(-2147483648, 2147483647, 2147483647): x += 1\n    return x + i",
                            {(0, 0): HIGHEST - 1 + 3}),
    "returns within loops": ("    for i in range(9):\n        if i * i > x: return i\n    return -1",
                             {(10, 0): 4, (80, 0): -1, (-1, 0): 0}),
    "code after a return": ("    return x\n    y += 1\n    return y", {(3, 4): 3}),
    "if True": ("    if True: return 3\n    return x", {(1, 1): 3}),
    "the nearest if": ("    if x:\n        if y: return 1\n    else: return 2\n    return 3",
                       {(1, 1): 1, (0, 1): 2, (1, 0): 3}),
    "elif": ("    if x < 0: z = 1\n    elif x > 9: z = 2\n    elif y: z = 3\n    else: z = 4\n    return z",
             {(-1, 0): 1, (10, 0): 2, (5, 1): 3, (5, 0): 4}),
    "assignments with a sign": ("    x += 2; x *= y; x -= 1; x //= 2; x %= 7; x <<= 3; x >>= 1; x |= 1; x &= 13; x ^= 2"
                                "\n    return x", {(1, 5): 3, (2, 5): 11}),
    "an argument is a copy": ("    z = change(x)\n    return x * 10 + z", {(3, 0): 34}),
}  # fmt: skip


@needs_compiler
def test_known_answers_in_both_forms(tmp_path):
    text, asked = HEADER + "x_and = 1\ndef change(x):\n    x += 1\n    return x\n", []
    for place, (expression, answers) in enumerate(KNOWN):
        text += f"def trader_{place}(market, own, draw):\n    x = own.a\n    y = own.b\n"
        text += f"    return order({expression}, 0, 0)\n"
        asked.append((expression, answers))
    for place, (name, (body, answers)) in enumerate(FLOWS.items(), start=len(KNOWN)):
        text += f"def flow_{place}(x, y):\n{body}\n"
        text += f"def trader_{place}(market, own, draw):\n    return order(flow_{place}(own.a, own.b), 0, 0)\n"
        asked.append((name, answers))
    module = module_of(text, tmp_path, "known_traders")
    programs = [read(getattr(module, f"trader_{place}"), VOCABULARY) for place in range(len(asked))]
    library = compiled(programs, tmp_path)
    for place, (name, answers) in enumerate(asked):
        for (x, y), answer in answers.items():
            wanted = [(answer + 2**31) % 2**32 - 2**31, 0, 0, 0, 1, 2]
            numbers = [0, 0, x, y, 1, 2]
            assert played(programs[place], numbers, 0) == wanted, f"{name} of {x}, {y} on Int32"
            assert library.run(place, numbers, 0) == wanted, f"{name} of {x}, {y} in C++"


def test_a_seed_is_a_program():
    assert Writer(random.Random(3)).trader("one") == Writer(random.Random(3)).trader("one")
