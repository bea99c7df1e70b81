"""Traders of tests: a small world in both forms, random programs of the whole language, and a library of many."""

import ctypes
import importlib.util
import random
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from kineticsim_env.agents.language import Program, Vocabulary, as_chance
from kineticsim_env.agents.numbers import Int32
from kineticsim_env.runtime import nvcc
from kineticsim_env.runtime.build import cuda_dir
from kineticsim_env.runtime.cxx import BASE_FLAGS, find_cxx

LOWEST, HIGHEST = -(2**31), 2**31 - 1
EDGES = (0, 1, 2, 3, -1, -2, 7, -7, 31, 32, 33, -31, -32, -33, 65535, 65536, LOWEST, LOWEST + 1, HIGHEST, HIGHEST - 1)
NO_ORDER = (0, 0, 0, -77)


def order(side, tick, quantity, marketable=0):
    return tuple(int(each) for each in (side, tick, quantity, marketable))


def no_order():
    return NO_ORDER


VOCABULARY = Vocabulary(
    seen=frozenset({"mid2", "ret"}),
    prices={"near_mid": 1},
    parameters=frozenset({"a", "b"}),
    memory=frozenset({"m0", "m1"}),
    draws={"below": 1, "chance": 1, "coin": 0},
    chances=frozenset({"chance"}),
    order=order,
    no_order=no_order,
)
INPUTS = ("mid2", "ret", "a", "b", "m0", "m1")
CPP = """#include "model/agent_language.h"
namespace ks {
struct Order { int32_t side, tick, quantity, marketable; };
KS_RULE Order order_of(int32_t a, int32_t b, int32_t c, int32_t d) { return {a, b, c, d}; }
KS_RULE Order no_order() { return {0, 0, 0, -77}; }
struct Market {
  int32_t mid2, ret;
  KS_RULE int32_t near_mid(int32_t x) const { return agent::add(mid2 >> 1, x); }
};
struct Own { int32_t w_a, w_b, w_m0, w_m1; };
struct Draw {
  uint64_t first;
  KS_RULE uint64_t word(int i) const { return first + (uint64_t)i * kGolden; }
  KS_RULE int32_t below(int32_t n, int i) const { return agent::modulo((int32_t)(word(i) >> 32), n); }
  KS_RULE int32_t chance(int32_t p, int i) const { return (int32_t)(word(i) & 0xffffff) < p; }
  KS_RULE int32_t coin(int i) const { return (int32_t)(word(i) >> 63); }
};
"""
RUN = """namespace n%(number)d {
%(text)s
KS_RULE void run(const int32_t* in, uint64_t word, int32_t* out) {
  const Market market{in[0], in[1]};
  Own own{in[2], in[3], in[4], in[5]};
  const Order made = %(name)s(market, own, Draw{word});
  const int32_t found[] = {made.side, made.tick, made.quantity, made.marketable, own.w_m0, own.w_m1};
  for (int i = 0; i < 6; ++i) out[i] = found[i];
}
%(entry)s
}
"""
ON_CORE = """extern "C" int run_%(number)d(const int32_t* in, uint64_t word, int32_t* out) {
  run(in, word, out);
  return 0;
}"""
ON_GPU = """__global__ void kernel(int32_t* numbers, uint64_t word) { run(numbers, word, numbers + 6); }
extern "C" int run_%(number)d(const int32_t* in, uint64_t word, int32_t* out) {
  static int32_t* numbers = nullptr;
  if (numbers == nullptr) cudaMallocManaged(&numbers, 12 * sizeof(int32_t));
  for (int i = 0; i < 6; ++i) numbers[i] = in[i];
  kernel<<<1, 1>>>(numbers, word);
  const cudaError_t error = cudaDeviceSynchronize();
  for (int i = 0; i < 6; ++i) out[i] = numbers[6 + i];
  return error;
}"""


class Draw:
    def __init__(self, first):
        self.first = first

    def word(self, number):
        return (self.first + int(number) * 0x9E3779B97F4A7C15) % 2**64

    def below(self, n, word=0):
        return Int32(self.word(word) >> 32) % n

    def chance(self, probability, word=0):
        return (self.word(word) & 0xFFFFFF) < as_chance(probability)

    def coin(self, word=0):
        return self.word(word) >> 63


def played(program: Program, numbers, word):
    """Return the order and the memory after it. What the objects hold are Python's own whole numbers."""
    seen = dict(zip(INPUTS, numbers, strict=True))
    market = SimpleNamespace(mid2=seen["mid2"], ret=seen["ret"])
    market.near_mid = lambda x: (market.mid2 >> 1) + int(x)
    own = SimpleNamespace(**{name: seen[name] for name in INPUTS[2:]})
    return [*program.play(market, own, Draw(word)), int(own.m0), int(own.m1)]


class Compiled:
    """Programs in one library; one that ends on .cu runs them on a GPU."""

    def __init__(self, programs, folder: Path, compiler: str, *flags: str, source: str = "programs.cpp"):
        entry = ON_GPU if source.endswith(".cu") else ON_CORE
        texts = [
            RUN % {"number": i, "text": each.text, "name": each.name, "entry": entry % {"number": i}}
            for i, each in enumerate(programs)
        ]
        (folder / source).write_text(CPP + "".join(texts) + "}\n")
        words = [*shlex.split(compiler), *flags, "-std=c++17", "-shared", "-I", cuda_dir()]
        subprocess.run([*map(str, words), source, "-o", "programs.so"], cwd=folder, check=True)
        self.library = ctypes.CDLL(str(folder / "programs.so"))

    def run(self, number, numbers, word):
        out = (ctypes.c_int32 * 6)()
        error = getattr(self.library, f"run_{number}")((ctypes.c_int32 * 6)(*numbers), ctypes.c_uint64(word), out)
        assert error == 0
        return list(out)


def compiled(programs, folder: Path, *flags: str) -> Compiled:
    """Return programs in a library of the C++ compiler, with the engine's flags."""
    return Compiled(programs, folder, str(find_cxx()), *BASE_FLAGS, *flags, "-fPIC")


def compiled_for_gpu(programs, folder: Path) -> Compiled:
    """Return programs in a library of nvcc's, for the GPU that torch uses."""
    major, minor = torch.cuda.get_device_capability()
    return Compiled(
        programs, folder, str(nvcc.find()), f"-arch=sm_{major}{minor}", "-Xcompiler=-fPIC", source="programs.cu"
    )


def module_of(text: str, folder: Path, name: str):
    """Return a module of a file with such a text."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def number(draw: random.Random):
    """Return any whole number of 32 bits, often an extreme one."""
    kind = draw.random()
    if kind < 0.4:
        return draw.choice(EDGES)
    return draw.randint(-40, 40) if kind < 0.7 else draw.randint(LOWEST, HIGHEST)


# Names that a compiler, the translation or the other form could take for their own.
LOCALS = ("x", "y", "int", "double", "v_x", "i_1", "c_1", "Int32", "truth", "f_first_0", "größe", "u_3", "NULL", "M_PI")
CONSTANTS = {"ONE": 1, "LOW": LOWEST, "HIGH": HIGHEST, "FLAG": True, "register": -17}
HEADER = "from tests.agent_programs import order, no_order\nimport tests.agent_programs as world\n"
HEADER += "".join(f"{name} = {value}\n" for name, value in CONSTANTS.items()) + "HALF = 0.5\n"
# Functions of numbers that call each other, with how many each takes.
HELPERS = {"first": 2, "second": 1, "third": 3, "nothing": 0}
HEADER += """
def nothing():
    return -2147483648

def first(x, y):
    for j in range(3):
        x = x * y + j
    return x ^ y

def second(default):
    '''Calls another.'''
    if default < 0:
        return first(default, nothing())
    switch = default % 7
    return -switch

def third(a, b, c):
    total = 0
    for step in range(a_constant, -4, -3):
        total += second(a) if step & 1 else first(b, c)
        a >>= 1
    return max(total, a, -5)

a_constant = 5
"""


class Writer:
    """Random programs of the language."""

    def __init__(self, draw: random.Random):
        self.draw = draw
        self.market, self.own, self.words = draw.choice([("market", "own", "draw"), ("m", "self", "char")])

    def trader(self, name: str) -> str:
        lines, has, ends = self.block(2, {"x"}, "    ")
        body = ["    x = 1", *lines]
        if not ends and self.draw.random() < 0.9:
            body.append("    " + self.returned(has, 3))
        return f"def {name}({self.market}, {self.own}, {self.words}):\n" + "\n".join(body) + "\n\n"

    def returned(self, has, depth):
        kind = self.draw.random()
        if kind < 0.1:
            return self.draw.choice(["return", "return None", "return no_order()", "return world.no_order()"])
        made = [self.expression(each, has) for each in (1, depth, 1)]
        if kind < 0.3:
            return f"return order({made[0]}, {made[1]}, {made[2]}) if {self.expression(2, has)} else no_order()"
        if kind < 0.5:
            return f"return world.order({made[0]}, quantity={made[1]}, tick={made[2]})"
        return f"return order({made[0]}, {made[1]}, {made[2]}, marketable={self.expression(1, has)})"

    def block(self, depth, has, indent):
        """Return lines, what has a value after them, and whether they always return."""
        lines, has, draw = [], set(has), self.draw
        for _ in range(draw.randint(1, 4)):
            kind = draw.random()
            if kind < 0.35:
                name = draw.choice(LOCALS)
                lines.append(f"{indent}{name} = {self.expression(3, has)}")
                has.add(name)
            elif kind < 0.5:
                lines.append(f"{indent}{self.own}.{draw.choice(['m0', 'm1'])} {self.sign()} {self.expression(2, has)}")
            elif kind < 0.65:
                lines.append(f"{indent}{draw.choice(sorted(has))} {self.sign()} {self.expression(2, has)}")
            elif kind < 0.82 and depth:
                more, has, ends = self.branches(depth, has, indent)
                lines += more
                if ends:
                    return lines, has, True
            elif kind < 0.94 and depth:
                more, has = self.loop(depth, has, indent)
                lines += more
            elif len(indent) > 4 and draw.random() < 0.4:
                return [*lines, indent + self.returned(has, 2)], has, True
            else:
                lines.append(indent + draw.choice(["pass", "'text'", "if True: pass"]))
        return lines, has, False

    def branches(self, depth, has, indent):
        lines = [f"{indent}if {self.expression(2, has)}:"]
        more, then, then_ends = self.block(depth - 1, has, indent + "    ")
        lines += more
        other, other_ends = has, False
        if self.draw.random() < 0.6:
            elif_too = self.draw.random() < 0.3
            lines.append(f"{indent}elif {self.expression(1, has)}:" if elif_too else f"{indent}else:")
            more, other, other_ends = self.block(depth - 1, has, indent + "    ")
            lines += more
            if elif_too:  # which may not be entered
                other, other_ends = other & has if not other_ends else has, False
        after = then & other if then_ends == other_ends else other if then_ends else then
        return lines, after, then_ends and other_ends

    def loop(self, depth, has, indent):
        draw, name = self.draw, self.draw.choice(LOCALS)
        bounds = draw.choice(
            [
                (draw.randint(-2, 4),),
                (draw.randint(-3, 3), draw.randint(-3, 5)),
                (draw.randint(-9, 9), draw.randint(-9, 9), draw.choice([-4, -3, -1, 1, 2, 5])),
                ("LOW", "HIGH", 2**30),
                ("HIGH", "LOW", -(2**30)),
                ("-ONE", "FLAG"),
            ]
        )
        known = [CONSTANTS.get(each, -1 if each == "-ONE" else each) for each in bounds]
        if "-ONE" in bounds:
            bounds, known = ("-1", "FLAG"), [-1, 1]
        more, inner, ends = self.block(depth - 1, has | {name}, indent + "    ")
        lines = [f"{indent}for {name} in range({', '.join(map(str, bounds))}):", *more]
        if not len(range(*known)):
            return lines, has
        return lines, has | {name} if ends else inner

    def sign(self):
        return self.draw.choice(["=", "+=", "-=", "*=", "//=", "%=", "<<=", ">>=", "&=", "|=", "^="])

    def leaf(self, has):
        kind = self.draw.random()
        if kind < 0.4:
            return self.draw.choice(sorted(has))
        if kind < 0.7:
            one, names = self.draw.choice([(self.market, ["mid2", "ret"]), (self.own, ["a", "b", "m0", "m1"])])
            return f"{one}.{self.draw.choice(names)}"
        if kind < 0.8:
            return self.draw.choice([*sorted(set(CONSTANTS) - has), "True", "False", "world.HIGHEST", "0x7fff_ffff"])
        return str(number(self.draw))

    def expression(self, depth, has):
        draw = self.draw
        if depth <= 0 or draw.random() < 0.15:
            return self.leaf(has)

        def part():
            return self.expression(depth - 1, has)

        def binary():
            return f"({part()} {draw.choice(['+', '-', '*', '//', '%', '<<', '>>', '&', '|', '^'])} {part()})"

        def compared():
            signs = draw.choices(["<", "<=", ">", ">=", "==", "!="], k=draw.choice([1, 1, 2, 3]))
            return f"({part()}{''.join(f' {sign} {part()}' for sign in signs)})"

        def logic():
            joined = f" {draw.choice(['and', 'or'])} ".join(part() for _ in range(draw.randint(2, 4)))
            return f"({joined})"

        def unary():
            return f"({draw.choice(['-', '+', 'not ', '- -'])}{part()})"

        def call():
            name, count = draw.choice([*HELPERS.items()])
            return f"{name}({', '.join(part() for _ in range(count))})"

        def drawn():
            word = draw.choice(["", "word=0", "word=1", "word=255", "word=ONE"])
            name = draw.choice(["below", "chance", "coin"])
            given = {
                "below": part(),
                "chance": draw.choice(["0.5", "0.0", "1.0", "HALF", part(), "1e-3"]),
                "coin": "",
            }[name]
            if name == "chance" and given in ("1", "True", "ONE", "FLAG"):  # which are refused as 2^-24
                given = "2"
            return f"{self.words}.{name}({', '.join(each for each in (given, word) if each)})"

        kinds = {
            binary: 10,
            compared: 4,
            logic: 2,
            unary: 2,
            call: 1,
            drawn: 2,
            lambda: f"({part()} if {part()} else {part()})": 2,
            lambda: f"{draw.choice(['min', 'max'])}({', '.join(part() for _ in range(draw.randint(2, 4)))})": 1,
            lambda: f"abs({part()})": 1,
            lambda: f"{self.market}.near_mid({part()})": 1,
        }
        return draw.choices(list(kinds), weights=list(kinds.values()))[0]()
