"""Expressions of the language as C++ of type int32_t, and what is refused among them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from kineticsim_env.agents.numbers import as_chance
from kineticsim_env.agents.source import FunctionRead, Library, Source
from kineticsim_env.agents.vocabulary import local_in_cpp, own_in_cpp

MOST_TURNS = 1 << 16  # of a program's loops, and calls of its functions
MOST_DEEP = 80  # parts within each other. One writes three brackets at most, and some compilers take 256 of them
LOWEST, HIGHEST = -(2**31), 2**31 - 1
MOST_WORDS = 256  # that a trader can draw from
_OPERATIONS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.FloorDiv: "divide_down", ast.Mod: "modulo",
    ast.LShift: "shift_left", ast.RShift: "shift_right",
}  # fmt: skip
_SIGNS: dict[type[ast.AST], str] = {
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_NAMES, _NO_CLASS = "use several names", "define functions of whole numbers"
_INSTEAD: dict[type[ast.AST], str] = {  # what to write in place of what is not in the language
    ast.Div: "// divides and rounds down", ast.Pow: "write a product, or 1 << n for a power of two",
    ast.MatMult: "there are no matrices", ast.Invert: "write -x - 1", ast.Is: "write ==", ast.IsNot: "write !=",
    ast.In: "compare with each value, joined by or", ast.NotIn: "compare with each value, joined by and",
    ast.While: "write for i in range(n) with a constant n, and an if within it", ast.Break: "use an if instead",
    ast.Continue: "use an if instead", ast.Try: "nothing raises here", ast.TryStar: "nothing raises here",
    ast.Raise: "return ks.no_order() instead", ast.Assert: "nothing can be raised here",
    ast.With: "there is nothing to open", ast.Delete: "leave the name", ast.Import: "import it before the function",
    ast.ImportFrom: "import it before the function", ast.FunctionDef: "define it before, beside this one",
    ast.AsyncFunctionDef: "define it before, beside this one, without async",
    ast.Lambda: "define a function before, beside this one", ast.ClassDef: _NO_CLASS,
    ast.Global: "memory is what own has", ast.Nonlocal: "memory is what own has", ast.List: _NAMES, ast.Tuple: _NAMES,
    ast.Dict: _NAMES, ast.Set: _NAMES, ast.Subscript: _NAMES, ast.ListComp: "write a for loop",
    ast.SetComp: "write a for loop", ast.DictComp: "write a for loop", ast.GeneratorExp: "write a for loop",
    ast.JoinedStr: "there are no texts", ast.Await: "write a plain function", ast.Yield: "return instead",
    ast.YieldFrom: "return instead", ast.NamedExpr: "assign in a line of its own", ast.Match: "write if and elif",
    ast.AnnAssign: "leave the annotation: all numbers are int32", ast.Starred: "write each number by itself",
}  # fmt: skip


class Expressions:
    """The expressions of one function as C++."""

    def __init__(self, library: Library, source: Source, *, trader: bool, depth: int) -> None:
        self.library, self.words, self.source, self.trader = library, library.vocabulary, source, trader
        self.depth = depth
        self.times, self.turns = 1, 0  # how often this place is reached at most; turns of loops, and calls, until here
        self.called = 0  # characters of the functions that are called
        self.chains = 0  # numbers in the middle of comparisons, which have names of their own
        self.has: set[str] = set() if trader else set(source.arguments)  # local names that have a value here
        named = dict(zip(self.words.arguments, source.arguments, strict=True)) if trader else {}
        self.market, self.slot = named.get("market", ""), named.get("slot", "")
        self.own, self.draw = named.get("own", ""), named.get("draw", "")
        self._writers: dict[type[ast.expr], Callable[[Any], str]] = {
            ast.Constant: lambda node: self.literal(node, node.value),
            ast.Name: self._name, ast.Attribute: self.attribute, ast.UnaryOp: self._unary, ast.BinOp: self._binary,
            ast.BoolOp: self._logic, ast.Compare: self._comparison, ast.IfExp: self._choice, ast.Call: self._call,
        }  # fmt: skip

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        """Raise ProgramError."""
        self.source.refuse(node, message)

    def refuse_kind(self, node: ast.AST, kind: ast.AST | None = None) -> NoReturn:
        """Raise ProgramError for a kind of statement, expression or operator that is not in the language."""
        instead = _INSTEAD.get(type(kind or node))
        said = f"got {self.source.quote(node)}, which traders cannot do"
        self.refuse(node, f"{said}; {instead}" if instead else said)

    def enter(self, node: ast.AST) -> None:
        """Count a part within another one."""
        self.depth += 1
        if self.depth > MOST_DEEP:
            self.refuse(node, f"is more than {MOST_DEEP} parts within each other; give some of them a name before")

    def spend(self, node: ast.AST, turns: int) -> None:
        """Count turns and calls that happen whenever this place is reached."""
        self.turns += self.times * turns
        if self.turns > MOST_TURNS:
            self.refuse(node, f"expected at most {MOST_TURNS} turns of loops and calls, got {self.turns} by here")

    def number(self, node: ast.expr) -> str:
        """Return an expression of type int32_t."""
        self.enter(node)
        writer = self._writers.get(type(node))
        text = writer(node) if writer else self.refuse_kind(node)
        self.depth -= 1
        return text

    # Literals and names ----------------------------------------------------------------------------------------------

    def literal(self, node: ast.AST, value: Any) -> str:
        """Return a number that is known."""
        value = self.checked(node, value)
        return str(value) if value > LOWEST else f"({LOWEST + 1} - 1)"  # C++ has no literal of it

    def checked(self, node: ast.AST, value: Any) -> int:
        """Return a whole number if it has 32 bits."""
        if not isinstance(value, int):
            self.refuse(node, f"expected whole numbers, got {self.source.quote(node)}")
        if not LOWEST <= value <= HIGHEST:
            said = value if value.bit_length() <= 64 else f"one of {value.bit_length()} bits"
            self.refuse(node, f"expected {LOWEST} to {HIGHEST} (32 bits), got the number {said}")
        return int(value)

    def constant(self, node: ast.expr) -> int | None:
        """Return a literal with a sign or without, or what a name of the surroundings stands for; None for all else."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            if isinstance(value, int) and isinstance(node.op, (ast.USub, ast.UAdd)):
                return self.checked(node, -value if isinstance(node.op, ast.USub) else value)
            return None
        value = node.value if isinstance(node, ast.Constant) else self.source.outer_number(node)
        return self.checked(node, value) if isinstance(value, int) else None

    def is_argument(self, node: ast.expr, name: str) -> bool:
        """Return whether an expression is that argument of a trader."""
        return isinstance(node, ast.Name) and self.trader and bool(name) and node.id == name

    def local(self, name: str) -> str:
        """Return how a local name is spelled."""
        return local_in_cpp(name, self.source.locals[name])

    def _name(self, node: ast.Name) -> str:
        if node.id in self.source.locals:
            if self.trader and node.id in self.source.arguments:
                self.refuse(node, f"uses {node.id!r} as a number; it has attributes")
            if node.id not in self.has:
                self.refuse(node, f"reads {node.id!r}, which may have no value here; give it one before")
            return self.local(node.id)
        value = self.source.outer_number(node)
        if value is None:
            self.refuse(node, f"expected local names and constants, got {node.id!r}, which is no whole number")
        return self.literal(node, value)

    def attribute(self, node: ast.Attribute) -> str:
        """Return what the market shows, a parameter or memory."""
        if self.is_argument(node.value, self.market):
            if node.attr in self.words.prices:
                self.refuse(node, f"got {self.source.quote(node)} without a call; write {self.market}.{node.attr}(...)")
            return f"market.{self._known(node, self.words.seen, 'a market')}"
        if self.is_argument(node.value, self.slot):
            if node.attr in self.words.of_slot:
                self.refuse(node, f"got {self.source.quote(node)} without a call; write {self.slot}.{node.attr}(...)")
            return f"slot.{self._known(node, self.words.slot, 'a slot')}"
        if self.is_argument(node.value, self.own):
            return f"own.{own_in_cpp(self._known(node, self.words.parameters | self.words.memory, 'this trader'))}"
        if self.is_argument(node.value, self.draw):
            name = self._known(node, self.words.draws, "a draw")
            self.refuse(node, f"got {self.source.quote(node)} without a call; write {self.draw}.{name}(...)")
        if isinstance(node.value, ast.Name) and node.value.id in self.source.locals:
            self.refuse(node, f"reads {self.source.quote(node)}, but {node.value.id!r} is a number; pass what it needs")
        value = self.source.outer_number(node)
        return self.refuse_kind(node) if value is None else self.literal(node, value)

    def _known(self, node: ast.Attribute, names: Any, whose: str) -> str:
        if node.attr not in names:
            has = ", ".join(sorted(names)) or "nothing"
            hint = "; declare it with informed=True" if node.attr in self.words.hidden else ""
            self.refuse(node, f"reads {node.attr!r}, which {whose} does not have; it has {has}{hint}")
        return node.attr

    # Operators -------------------------------------------------------------------------------------------------------

    def _unary(self, node: ast.UnaryOp) -> str:
        if (value := self.constant(node)) is not None:  # -2147483648, whose digits alone are no number of 32 bits
            return self.literal(node, value)
        if isinstance(node.op, ast.Invert):
            self.refuse_kind(node, node.op)
        inner = self.number(node.operand)
        if isinstance(node.op, ast.Not):
            return f"(int32_t)({inner} == 0)"
        return f"agent::negate({inner})" if isinstance(node.op, ast.USub) else inner

    def _binary(self, node: ast.BinOp) -> str:
        return self.operation(node, node.op, self.number(node.left), self.number(node.right))

    def operation(self, node: ast.AST, op: ast.AST, left: str, right: str) -> str:
        """Return an operator between two numbers."""
        if type(op) in _OPERATIONS:
            return f"agent::{_OPERATIONS[type(op)]}({left}, {right})"
        return f"({left} {_SIGNS.get(type(op)) or self.refuse_kind(node, op)} {right})"

    def _logic(self, node: ast.BoolOp) -> str:
        sign = " && " if isinstance(node.op, ast.And) else " || "
        return f"(int32_t)({sign.join(f'({self.number(part)} != 0)' for part in node.values)})"

    def _comparison(self, node: ast.Compare) -> str:
        """Return comparisons in a row. Numbers in the middle are compared twice, and computed once: they get a name."""
        for op in node.ops:
            if type(op) not in _SIGNS:
                self.refuse_kind(node, op)
        left, tests = self.number(node.left), []
        for place, (op, part) in enumerate(zip(node.ops, node.comparators, strict=True), start=1):
            right = self.number(part)
            following = right
            if place < len(node.ops):
                self.chains += 1
                following, right = f"c_{self.chains}", f"(c_{self.chains} = {right})"
            tests.append(self.operation(node, op, left, right))
            left = following
        return f"(int32_t)({' && '.join(tests)})"

    def _choice(self, node: ast.IfExp) -> str:
        return f"({self.number(node.test)} ? {self.number(node.body)} : {self.number(node.orelse)})"

    # Calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> str:
        if any(isinstance(part, ast.Starred) for part in node.args) or any(word.arg is None for word in node.keywords):
            self.refuse(node, "expected plain arguments, got * or ** in a call")
        said = self.source.quote(node.func)
        if isinstance(node.func, ast.Attribute) and self.is_argument(node.func.value, self.market):
            if node.func.attr in self.words.seen:
                self.refuse(node, f"calls {said}, which is a number; write it without ()")
            name = self._known(node.func, self.words.prices, "a market")
            return f"market.{name}({', '.join(self._numbers(node, self.words.prices[name]))})"
        if isinstance(node.func, ast.Attribute) and self.is_argument(node.func.value, self.slot):
            if node.func.attr in self.words.slot:
                self.refuse(node, f"calls {said}, which is a number; write it without ()")
            name = self._known(node.func, self.words.of_slot, "a slot")
            return f"slot.{name}({', '.join(self._numbers(node, self.words.of_slot[name]))})"
        if isinstance(node.func, ast.Attribute) and self.is_argument(node.func.value, self.draw):
            return self._drawn(node, self._known(node.func, self.words.draws, "a draw"))
        if isinstance(node.func, ast.Name) and node.func.id in self.source.locals:
            self.refuse(node, f"calls {said}, which is a number")
        called = self.source.outer(node.func)
        if called is min or called is max:
            return self._least_or_most(node, f"{called.__name__}_of")
        if called is abs:
            return f"agent::absolute({self._numbers(node, 1)[0]})"
        makers = (self.words.order, self.words.no_order, self.words.quote, self.words.quotes, self.words.keep)
        if called is not None and any(called is maker for maker in makers):
            instead = "return ks.order(...)" if self.words.quote is None else "return ks.quote(...)"
            self.refuse(node, f"makes an order that is not returned; write {instead}")
        if not inspect.isfunction(called):
            self.refuse(node, f"expected calls of min, max, abs and functions of whole numbers, got {said}")
        return self._own_function(node, called)

    def _least_or_most(self, node: ast.Call, name: str) -> str:
        if len(node.args) < 2:
            self.refuse(node, f"expected two whole numbers or more, got {self.source.quote(node)}")
        self.depth += len(node.args) - 2  # each is written within the one before
        text, *others = self._numbers(node, len(node.args))
        self.depth -= len(node.args) - 2
        for other in others:
            text = f"{name}({text}, {other})"
        return text

    def read(self, function: Any) -> FunctionRead:
        """Read a whole function; see translation.py."""
        raise NotImplementedError

    def _own_function(self, node: ast.Call, called: Any) -> str:
        said = self.source.quote(node.func)
        if any(called is each for each in self.library.within):
            self.refuse(node, f"calls {said}, which calls itself; write a for loop")
        if called not in self.library.known:
            try:
                source = Source(called)
            except TypeError as error:
                self.refuse(node, f"calls {said}, which cannot be read ({error}); define it with def in a file")
            type(self)(self.library, source, trader=False, depth=self.depth).read(called)
        found = self.library.known[called]
        self.spend(node, 1 + found.turns)
        self.called += found.length
        return f"{found.name}({', '.join(self._numbers(node, len(found.source.arguments)))})"

    def _numbers(self, node: ast.Call, count: int) -> list[str]:
        self._check_count(node, count)
        if node.keywords:
            self.refuse(node, f"expected numbers alone, got {node.keywords[0].arg}= in {self.source.quote(node)}")
        return [self.number(part) for part in node.args]

    def _check_count(self, node: ast.Call, count: int) -> None:
        if len(node.args) != count:
            allowed = f"{count} whole number" + "s" * (count != 1)
            self.refuse(node, f"expected {allowed}, got {len(node.args)} in {self.source.quote(node)}")

    def _drawn(self, node: ast.Call, name: str) -> str:
        word: int | None = 0
        for keyword in node.keywords:
            word = self.constant(keyword.value) if keyword.arg == "word" else None
            if word is None or not 0 <= word < MOST_WORDS:
                said = self.source.quote(node)
                self.refuse(node, f"expected word= a constant from 0 to {MOST_WORDS - 1}, got {said}")
        self._check_count(node, self.words.draws[name])
        write = self._chance if name in self.words.chances else self.number
        return f"draw.{name}({', '.join([*map(write, node.args), str(word)])})"

    def _chance(self, node: ast.expr) -> str:
        """Return a probability that is written with a point as a multiple of 2^-24, as the config does."""
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
        value = inner.value if isinstance(inner, ast.Constant) else self.source.outer(inner)
        if not isinstance(value, float):
            if self.constant(node) == 1:
                self.refuse(node, "got the probability 1, which stands for 2^-24; write 1.0 for always")
            return self.number(node)
        value = -float(value) if negative else float(value)
        if not 0.0 <= value <= 1.0:
            self.refuse(node, f"expected 0.0 to 1.0, got the probability {value}")
        return str(as_chance(value))
