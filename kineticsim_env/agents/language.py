"""The language of traders: a part of Python on whole numbers of 32 bits, written as C++ and run as itself.

`read` takes a Python function and says what is wrong with it, or returns it in both forms: the text of a C++ function,
and the function itself on `Int32`, which engines are compared with. No other place knows Python's syntax tree.

A program is a list of statements: assignments to local names and to what a trader remembers, `if`, `for` over a
constant range, `return`. Every expression is one whole number. So a program always ends, and reaches no memory but its
own: what it can name is in `Vocabulary`.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from kineticsim_env.agents.numbers import Int32, truth
from kineticsim_env.errors import KineticSimError

MOST_TURNS = 1 << 16  # of all loops within each other
_OPERATIONS = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.FloorDiv: "divide_down", ast.Mod: "modulo",
    ast.LShift: "shift_left", ast.RShift: "shift_right",
}  # fmt: skip
_SIGNS = {
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_INSTEAD = {  # what to write in place of what is not in the language
    ast.Div: "// divides and rounds down", ast.Pow: "write a product, or 1 << n for a power of two",
    ast.MatMult: "there are no matrices", ast.Invert: "write -x - 1", ast.Is: "write ==", ast.IsNot: "write !=",
    ast.In: "compare with each value, joined by or", ast.NotIn: "compare with each value, joined by and",
    ast.While: "write for i in range(n) with a constant n, and an if within it", ast.Break: "use an if instead",
    ast.Continue: "use an if instead", ast.Try: "nothing raises here", ast.Raise: "return ks.no_order() instead",
    ast.Assert: "nothing can be raised here", ast.With: "there is nothing to open", ast.Delete: "leave the name",
    ast.Import: "import it before the function", ast.ImportFrom: "import it before the function",
    ast.FunctionDef: "define it before, beside this one", ast.Lambda: "define a function before, beside this one",
    ast.ClassDef: "define functions of whole numbers", ast.Global: "memory is what own has",
    ast.Nonlocal: "memory is what own has", ast.List: "use several names", ast.Tuple: "use several names",
    ast.Dict: "use several names", ast.Set: "use several names", ast.ListComp: "write a for loop",
    ast.GeneratorExp: "write a for loop", ast.Subscript: "use several names", ast.JoinedStr: "there are no texts",
    ast.Await: "write a plain function", ast.Yield: "return instead", ast.NamedExpr: "assign in a line of its own",
    ast.Match: "write if and elif", ast.AnnAssign: "leave the annotation: all numbers are int32",
}  # fmt: skip


class ProgramError(KineticSimError, SyntaxError):
    """A trader's function is not in the language; the message says where, and what to write instead."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What a trader's function can name through its arguments.

    Attributes:
        seen: Names that the first argument has, all whole numbers.
        prices: Methods of the first argument, with how many whole numbers each takes.
        parameters: Names that the second argument has, and that are not written.
        memory: Those that may be written too.
        draws: Methods of the third argument, with how many whole numbers each takes; all take `word=` a constant too.
        chances: Those of them whose argument is a probability from 0 to 1, or a whole number of 2^-24.
        order: The function that makes an order: side, tick, quantity, marketable.
        no_order: The function that makes none.
    """

    seen: frozenset[str]
    prices: Mapping[str, int]
    parameters: frozenset[str]
    memory: frozenset[str]
    draws: Mapping[str, int]
    chances: frozenset[str]
    order: Callable[..., Any]
    no_order: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Program:
    """A trader's function in both forms.

    Attributes:
        name: Its name.
        text: C++: the functions that it calls, and `inline Order NAME(const Market&, Own&, const Draw&)` with the given
            types.
        play: The Python function on `Int32`, called with objects that have the vocabulary's names.
    """

    name: str
    text: str
    play: Callable[..., Any]


def read(function: Callable[..., Any], vocabulary: Vocabulary) -> Program:
    """Return a trader's function in both forms.

    Args:
        function: A plain Python function of three arguments, whose source can be read.
        vocabulary: What it can name.

    Raises:
        ProgramError: If it is not in the language.
        TypeError: If it is not a function, or its source cannot be read.
    """
    library = _Library(vocabulary)
    name = library.add(function, trader=True)
    exec(compile(ast.fix_missing_locations(library.module), f"<{name}>", "exec"), library.names)  # noqa: S102
    return Program(name, "\n".join(library.texts), library.names[name])


class _Library:
    """The functions of one program: as C++, and as a module of Python."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.texts: list[str] = []
        self.module = ast.Module(body=[], type_ignores=[])
        self.names: dict[str, Any] = {"Int32": Int32, "truth": truth}
        self.known: dict[Any, str] = {}
        self.within: list[Any] = []  # functions that are being read

    def add(self, function: Any, *, trader: bool = False) -> str:
        """Read a function once; returns its name in both forms."""
        if function in self.known:
            return self.known[function]
        tree, lines, first, path = _source_of(function)
        name = f"{function.__name__}_{len(self.known)}"
        self.within.append(function)
        text = _Translation(self, function, (lines, first, path), trader).function(tree, name)
        self.within.pop()
        self.known[function] = name
        self.texts.append(text)
        self.module.body.append(_OnInt32(self, function, tree, name).function())
        return name


def _source_of(function: Any) -> tuple[ast.FunctionDef, list[str], int, str]:
    if not inspect.isfunction(function):
        raise TypeError(f"agent: got {function!r}, allowed is a plain Python function (def)")
    try:
        lines, first = inspect.getsourcelines(function)
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, SyntaxError, ValueError) as error:
        raise TypeError(
            f"agent: the source of {function.__name__} cannot be read; define it with def in a file or a notebook"
        ) from error
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(f"agent: got {function.__name__!r}, allowed is a plain function (def)")
    return tree, lines, first, inspect.getsourcefile(function) or "?"


class _Scope:
    """What a name of a function's surroundings stands for: its module's, its enclosing function's, or Python's own."""

    def __init__(self, function: Any) -> None:
        around = inspect.getclosurevars(function)
        self.values = {**vars(builtins), **function.__globals__, **around.nonlocals}

    def find(self, node: ast.expr) -> Any:
        """Return what a name, or an attribute of a module, stands for; None if nothing does."""
        if isinstance(node, ast.Name):
            return self.values.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self.find(node.value), node.attr, None) if inspect.ismodule(self.find(node.value)) else None
        return None

    def number(self, node: ast.expr) -> int | None:
        """Return the whole number that a name of the surroundings stands for, or None."""
        value = self.find(node)
        return int(value) if isinstance(value, int) else None


class _Translation:
    """One function as C++; it also finds all that is wrong with it."""

    def __init__(self, library: _Library, function: Any, source: tuple[list[str], int, str], trader: bool) -> None:
        self.library, self.words, self.trader = library, library.vocabulary, trader
        self.name, self.scope, self.source = function.__name__, _Scope(function), source
        self.turns, self.loops = 1, 0
        self.locals: dict[str, None] = {}  # all that are assigned anywhere, in order

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        lines, first, path = self.source
        number = getattr(node, "lineno", 1)
        text = lines[number - 1].rstrip("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())
        place = (path, first + number - 1, getattr(node, "col_offset", 0) + indent + 1, text)
        raise ProgramError(f"{self.name}: {message}", place)

    def unknown(self, node: ast.AST) -> NoReturn:
        instead = _INSTEAD.get(type(node))
        said = ast.unparse(node) if isinstance(node, (ast.expr, ast.stmt)) else type(node).__name__
        said = said.splitlines()[0]
        self.refuse(node, f"got {said!r}, which traders cannot do" + (f"; {instead}" if instead else ""))

    # Functions and statements ----------------------------------------------------------------------------------------

    def function(self, tree: ast.FunctionDef, name: str) -> str:
        said = tree.args
        if said.vararg or said.kwarg or said.kwonlyargs or said.defaults or said.posonlyargs:
            self.refuse(tree, "got *, ** or a default among the arguments, allowed are plain names")
        self.arguments = [argument.arg for argument in said.args]
        if self.trader and len(self.arguments) != 3:
            self.refuse(tree, f"got {len(self.arguments)} arguments, allowed are three: market, own, draw")
        self.market, self.own, self.draw = self.arguments if self.trader else ("", "", "")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                if node.id in self.arguments and self.trader:
                    self.refuse(node, f"got an assignment to {node.id!r}, allowed is another name")
                self.locals[node.id] = None
        has = set() if self.trader else set(self.arguments)
        body, ends = self.block(tree.body, has, 1)
        if not ends and not self.trader:
            self.refuse(tree, "may end without a value; return a number at its end")
        last = "" if ends else "  return no_order();\n"
        new = [f"v_{local}" for local in self.locals if local not in self.arguments]
        declared = f"  int32_t {', '.join(f'{local} = 0' for local in new)};\n" if new else ""
        takes = (
            "const Market& market, Own& own, const Draw& draw"
            if self.trader
            else ", ".join(f"int32_t v_{argument}" for argument in self.arguments)
        )
        return f"KS_RULE {'Order' if self.trader else 'int32_t'} {name}({takes}) {{\n{declared}{body}{last}}}\n"

    def block(self, statements: list[ast.stmt], has: set[str], depth: int) -> tuple[str, bool]:
        """Return the text, and whether it always returns. `has` is what names have a value; it grows."""
        text, ends = "", False
        for node in statements:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                continue  # a docstring
            here, returns = self.statement(node, has)
            ends = ends or returns
            text += "".join(f"{'  ' * depth}{line}\n" for line in here.splitlines())
        return text, ends

    def statement(self, node: ast.stmt, has: set[str]) -> tuple[str, bool]:
        if isinstance(node, ast.Pass):
            return "", False
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            return self.assignment(node, has), False
        if isinstance(node, ast.If):
            then, other = set(has), set(has)
            condition = self.number(node.test, has)
            yes, yes_ends = self.block(node.body, then, 1)
            no, no_ends = self.block(node.orelse, other, 1)
            has |= (other if yes_ends else then) if yes_ends or no_ends else then & other
            return f"if ({condition}) {{\n{yes}}} else {{\n{no}}}", yes_ends and no_ends
        if isinstance(node, ast.For):
            return self.loop(node, has), False
        if isinstance(node, ast.Return):
            if not self.trader:
                return f"return {self.number(self.value_of(node), has)};", True
            return f"return {self.order(node.value, has)};", True
        if isinstance(node, ast.Expr):
            self.refuse(node, f"got {ast.unparse(node)!r}, which has no effect; assign it, or remove it")
        self.unknown(node)

    def value_of(self, node: ast.Return) -> ast.expr:
        return node.value if node.value is not None else self.refuse(node, "returns nothing; return a number")

    def assignment(self, node: ast.Assign | ast.AugAssign, has: set[str]) -> str:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) > 1 or isinstance(targets[0], (ast.Tuple, ast.List, ast.Starred)):
            self.refuse(node, "assigns several names; assign one per line")
        target = targets[0]
        value = self.number(node.value, has)
        if isinstance(node, ast.AugAssign):
            former = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
            value = self.operation(node, node.op, self.number(former, has), value)
        if isinstance(target, ast.Name):
            has.add(target.id)
            return f"v_{target.id} = {value};"
        if isinstance(target, ast.Attribute) and self.is_argument(target.value, self.own):
            if target.attr in self.words.parameters:
                self.refuse(target, f"writes the parameter {target.attr!r}; what changes is memory: declare it as such")
            return f"{self.attribute(target)} = {value};"
        self.refuse(target, f"writes {ast.unparse(target)!r}, allowed are local names, and memory of {self.own!r}")

    def loop(self, node: ast.For, has: set[str]) -> str:
        if not isinstance(node.target, ast.Name) or node.orelse:
            self.refuse(node, "allowed is for NAME in range(n), without else")
        call = node.iter
        is_range = isinstance(call, ast.Call) and self.scope.find(call.func) is range and not call.keywords
        bounds = [self.constant(part) for part in call.args] if is_range else []  # type: ignore[attr-defined]
        if not 1 <= len(bounds) <= 3 or any(bound is None for bound in bounds) or bounds[2:] == [0]:
            self.refuse(node, "loops over something else than range of constants; write for i in range(8)")
        turns = range(*bounds)  # type: ignore[arg-type]
        former, self.turns = self.turns, self.turns * max(len(turns), 1)
        if self.turns > MOST_TURNS:
            self.refuse(node, f"has {self.turns} turns within each other, allowed are {MOST_TURNS}")
        self.loops += 1
        counter, inner = f"i_{self.loops}", has | {node.target.id}
        body, ends = self.block(node.body, inner, 1)
        if turns:
            has |= {node.target.id} if ends else inner
        self.turns = former
        step = f"v_{node.target.id} = {turns.start} + {turns.step} * {counter};"
        return f"for (int32_t {counter} = 0; {counter} < {len(turns)}; ++{counter}) {{\n  {step}\n{body}}}"

    def constant(self, node: ast.expr) -> int | None:
        """Return a literal, its negative, or what a name of the surroundings stands for."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.constant(node.operand)
            return None if inner is None else -inner
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return int(node.value)
        return None if isinstance(node, ast.Name) and self.is_local(node.id) else self.scope.number(node)

    def order(self, node: ast.expr | None, has: set[str]) -> str:
        """Return what a trader returns."""
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return "no_order()"
        if isinstance(node, ast.IfExp):
            return f"({self.number(node.test, has)}) ? {self.order(node.body, has)} : {self.order(node.orelse, has)}"
        made = self.scope.find(node.func) if isinstance(node, ast.Call) else None
        if made is self.words.no_order and not (node.args or node.keywords):  # type: ignore[union-attr]
            return "no_order()"
        if made is not self.words.order:
            self.refuse(node, f"returns {ast.unparse(node)!r}; return ks.order(...) or ks.no_order()")
        names = ("side", "tick", "quantity", "marketable")
        given = dict(zip(names, node.args, strict=False))  # type: ignore[union-attr]
        for keyword in node.keywords:  # type: ignore[union-attr]
            if keyword.arg not in names or keyword.arg in given:
                self.refuse(node, f"got {keyword.arg!r} in an order, allowed are {', '.join(names)}, each once")
            given[keyword.arg] = keyword.value
        if len(node.args) > 4 or not set(names[:3]) <= set(given):  # type: ignore[union-attr]
            self.refuse(node, "got an order without side, tick and quantity; write ks.order(side, tick, quantity)")
        return f"order_of({', '.join(self.number(given[name], has) if name in given else '0' for name in names)})"

    # Numbers -----------------------------------------------------------------------------------------------------------

    def number(self, node: ast.expr, has: set[str]) -> str:
        """Return an expression of type int32_t."""
        if isinstance(node, ast.Constant):
            return self.literal(node, node.value)
        if isinstance(node, ast.Name):
            return self.named(node, has)
        if isinstance(node, ast.Attribute):
            value = self.scope.number(node)
            return self.attribute(node) if value is None else self.literal(node, value)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node, has)
        if isinstance(node, ast.BinOp):
            return self.operation(node, node.op, self.number(node.left, has), self.number(node.right, has))
        if isinstance(node, ast.BoolOp):
            sign = " && " if isinstance(node.op, ast.And) else " || "
            return f"(int32_t)({sign.join(f'({self.number(part, has)} != 0)' for part in node.values)})"
        if isinstance(node, ast.Compare):
            return self.comparison(node, has)
        if isinstance(node, ast.IfExp):
            parts = (self.number(part, has) for part in (node.test, node.body, node.orelse))
            return "({} ? {} : {})".format(*parts)
        if isinstance(node, ast.Call):
            return self.call(node, has)
        self.unknown(node)

    def literal(self, node: ast.AST, value: Any) -> str:
        if isinstance(value, bool):
            return str(int(value))
        if not isinstance(value, int):
            self.refuse(node, f"got {value!r}, allowed are whole numbers")
        if not -(2**31) <= value < 2**31:
            self.refuse(node, f"got {value}, allowed are numbers of 32 bits, -2147483648 to 2147483647")
        return str(value) if value > -(2**31) else "(-2147483647 - 1)"

    def is_local(self, name: str) -> bool:
        return name in self.locals or name in self.arguments

    def is_argument(self, node: ast.expr, name: str) -> bool:
        return isinstance(node, ast.Name) and self.trader and node.id == name

    def named(self, node: ast.Name, has: set[str]) -> str:
        if self.is_local(node.id):
            if self.trader and node.id in self.arguments:
                self.refuse(node, f"uses {node.id!r} as a number; it has attributes")
            if node.id not in has:
                self.refuse(node, f"reads {node.id!r}, which may have no value here; give it one before")
            return f"v_{node.id}"
        value = self.scope.number(node)
        if value is None:
            self.refuse(node, f"reads {node.id!r}, which is no whole number; allowed are local names and constants")
        return self.literal(node, value)

    def attribute(self, node: ast.Attribute) -> str:
        """Return what the market shows, a parameter or memory."""
        if self.is_argument(node.value, self.market):
            return f"market.{self.known(node, self.words.seen, 'a market')}"
        if self.is_argument(node.value, self.own):
            return f"own.{self.known(node, self.words.parameters | self.words.memory, 'this trader')}"
        if self.is_argument(node.value, self.draw):
            self.refuse(node, f"got {ast.unparse(node)!r} without a call; write {ast.unparse(node)}(...)")
        self.unknown(node)

    def known(self, node: ast.Attribute, names: Any, whose: str) -> str:
        if node.attr not in names:
            has = ", ".join(sorted(names)) or "nothing"
            self.refuse(node, f"reads {node.attr!r}, which {whose} does not have; it has {has}")
        return node.attr

    def unary(self, node: ast.UnaryOp, has: set[str]) -> str:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            return self.literal(node, -value if isinstance(value, int) else value)
        if isinstance(node.op, ast.Invert):
            self.refuse(node, f"got {ast.unparse(node)!r}, which traders cannot do; {_INSTEAD[ast.Invert]}")
        inner = self.number(node.operand, has)
        if isinstance(node.op, ast.Not):
            return f"(int32_t)({inner} == 0)"
        return f"agent::negate({inner})" if isinstance(node.op, ast.USub) else inner

    def operation(self, node: ast.AST, op: ast.operator, left: str, right: str) -> str:
        if type(op) in _OPERATIONS:
            return f"agent::{_OPERATIONS[type(op)]}({left}, {right})"
        if type(op) in _SIGNS:
            return f"({left} {_SIGNS[type(op)]} {right})"
        said = ast.unparse(node) if isinstance(node, (ast.expr, ast.stmt)) else "?"
        self.refuse(node, f"got {said!r}, which traders cannot do; {_INSTEAD[type(op)]}")

    def comparison(self, node: ast.Compare, has: set[str]) -> str:
        """Return a chain of comparisons; its inner parts are written twice, as no expression has an effect."""
        parts = [self.number(part, has) for part in (node.left, *node.comparators)]
        tests = []
        for op, left, right in zip(node.ops, parts, parts[1:], strict=False):
            if type(op) not in _SIGNS:
                self.refuse(node, f"got {ast.unparse(node)!r}, which traders cannot do; {_INSTEAD[type(op)]}")
            tests.append(f"({left} {_SIGNS[type(op)]} {right})")
        return f"(int32_t)({' && '.join(tests)})"

    # Calls -------------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, has: set[str]) -> str:
        if any(isinstance(part, ast.Starred) for part in node.args) or any(word.arg is None for word in node.keywords):
            self.refuse(node, "got * or ** in a call, allowed are plain arguments")
        if isinstance(node.func, ast.Attribute) and self.is_argument(node.func.value, self.market):
            name = self.known(node.func, self.words.prices, "a market")
            return f"market.{name}({self.numbers(node, self.words.prices[name], has)})"
        if isinstance(node.func, ast.Attribute) and self.is_argument(node.func.value, self.draw):
            return self.drawn(node, self.known(node.func, self.words.draws, "a draw"), has)
        if isinstance(node.func, ast.Name) and self.is_local(node.func.id):
            self.refuse(node, f"calls {node.func.id!r}, which is a number")
        called = self.scope.find(node.func)
        if called in (min, max) and len(node.args) >= 2:
            parts = self.numbers(node, len(node.args), has, split=True)
            text = parts[0]
            for part in parts[1:]:
                text = f"{called.__name__}_of({text}, {part})"
            return text
        if called is abs:
            return f"agent::absolute({self.numbers(node, 1, has)})"
        if called in (self.words.order, self.words.no_order):
            self.refuse(node, "makes an order that is not returned; write return ks.order(...)")
        if not inspect.isfunction(called):
            self.refuse(
                node, f"calls {ast.unparse(node.func)!r}, allowed are min, max, abs, and functions of whole numbers"
            )
        if called in self.library.within:
            self.refuse(node, f"calls {ast.unparse(node.func)!r}, which calls itself; write a for loop")
        name = self.library.add(called)
        return f"{name}({self.numbers(node, len(inspect.signature(called).parameters), has)})"

    def numbers(self, node: ast.Call, count: int, has: set[str], *, split: bool = False) -> Any:
        if node.keywords or len(node.args) != count:
            self.refuse(node, f"got {ast.unparse(node)!r}, allowed are {count} whole numbers")
        parts = [self.number(part, has) for part in node.args]
        return parts if split else ", ".join(parts)

    def drawn(self, node: ast.Call, name: str, has: set[str]) -> str:
        word = "0"
        for keyword in node.keywords:
            number = self.constant(keyword.value)
            if keyword.arg != "word" or number is None or not 0 <= number < 256:
                self.refuse(node, f"got {ast.unparse(node)!r}, allowed is word= a constant from 0 to 255")
            word = str(number)
        if len(node.args) != self.words.draws[name]:
            self.refuse(node, f"got {ast.unparse(node)!r}, allowed are {self.words.draws[name]} arguments")
        given = [self.chance(part) if name in self.words.chances else None for part in node.args]
        parts = [self.number(part, has) if text is None else text for part, text in zip(node.args, given, strict=True)]
        return f"draw.{name}({', '.join([*parts, word])})"

    def chance(self, node: ast.expr) -> str | None:
        """Return a probability that is written with a point as a multiple of 2^-24, as the config does."""
        value = self.scope.find(node) if isinstance(node, (ast.Name, ast.Attribute)) else getattr(node, "value", None)
        if not isinstance(value, float) or (isinstance(node, ast.Name) and self.is_local(node.id)):
            return None
        if not 0.0 <= value <= 1.0:
            self.refuse(node, f"got the probability {value}, allowed is 0 to 1")
        return str(as_chance(value))


def as_chance(probability: Any) -> int:
    """Return a probability as a multiple of 2^-24: a float from 0 to 1, or what is one already."""
    return round(probability * 2**24) if isinstance(probability, float) else int(probability)


class _OnInt32(ast.NodeTransformer):
    """The same function on `Int32`: constants become such numbers, and what is true or false 1 or 0."""

    def __init__(self, library: _Library, function: Any, tree: ast.FunctionDef, name: str) -> None:
        self.library, self.scope, self.tree, self.name = library, _Scope(function), tree, name
        self.own_names = {argument.arg for argument in tree.args.args}
        self.own_names |= {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def function(self) -> ast.FunctionDef:
        new = ast.parse(ast.unparse(self.tree)).body[0]
        assert isinstance(new, ast.FunctionDef)
        new.name, new.decorator_list, new.returns = self.name, [], None
        for argument in new.args.args:
            argument.annotation = None
        new.body = [self.visit(node) for node in new.body]
        return new

    @staticmethod
    def _wrapped(node: ast.expr, name: str = "Int32") -> ast.expr:
        return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[node], keywords=[])

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._wrapped(node) if isinstance(node.value, int) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return self._wrapped(node, "truth")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._wrapped(node, "truth") if isinstance(node.op, ast.Not) else node

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.iter = ast.Call(
            func=ast.Name(id="map", ctx=ast.Load()), args=[ast.Name(id="Int32", ctx=ast.Load()), node.iter], keywords=[]
        )
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node if node.id in self.own_names else self._of_surroundings(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self.own_names:
            return node
        return self._of_surroundings(node)

    def _of_surroundings(self, node: ast.Name | ast.Attribute) -> ast.expr:
        """Replace what a name of the surroundings stands for: a number, a function of the program, or Python's."""
        value = self.scope.find(node)
        if isinstance(value, (int, float)):
            return (
                self._wrapped(ast.Constant(value=int(value))) if isinstance(value, int) else ast.Constant(value=value)
            )
        name = self.library.known.get(value) or f"{getattr(value, '__name__', 'thing')}_outside"
        if value in (min, max, abs, range):
            name = value.__name__
        elif value not in self.library.known:
            self.library.names[name] = value
        return ast.Name(id=name, ctx=ast.Load())
