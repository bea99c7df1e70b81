"""Statements of the language as C++, and what is refused among them."""

from __future__ import annotations

import ast
from typing import Any

from kineticsim_env.agents.expressions import Expressions
from kineticsim_env.agents.source import FunctionRead, Library, Source
from kineticsim_env.agents.vocabulary import function_in_cpp, local_in_cpp
from kineticsim_env.runtime import layout

MOST_TEXT = 20_000  # characters of C++ with functions in the place of their calls: seconds for a compiler
_TRADER = "const Market& market, Own& own, const Draw& draw"
_POLICY = "const Market& market, const Slot& slot, Own& own, const Draw& draw"
_ORDER = ("side", "tick", "quantity", "marketable")
_QUOTE = ("bid", "bid_qty", "ask", "ask_qty", "bid_flags", "ask_flags")
MOST_LEVELS = layout.CONSTANTS["kMaxOrdersPerSide"]  # of a policy's ladder


class Translation(Expressions):
    """One function as C++; it also finds all that is wrong with it."""

    def __init__(self, library: Library, source: Source, *, trader: bool, depth: int) -> None:
        said = source.tree.args
        if said.vararg or said.kwarg or said.kwonlyargs or said.defaults or said.posonlyargs:
            source.refuse(source.tree, "expected plain names, got *, ** or a default among the arguments")
        names = library.vocabulary.arguments
        if trader and len(source.arguments) != len(names):
            count, said = len(source.arguments), {3: "three", 4: "four"}[len(names)]
            source.refuse(source.tree, f"expected {said} arguments, {', '.join(names)}, got {count}")
        super().__init__(library, source, trader=trader, depth=depth)
        self.loops = 0

    def read(self, function: Any) -> FunctionRead:
        """Read the function, and before it those that it calls and that are not known yet."""
        self.library.within.append(function)
        body = self.body()
        name = function_in_cpp(self.source.name, len(self.library.known))
        text = self.function(name, body)
        found = FunctionRead(name, self.source, text, self.turns, self.length(text))
        self.library.within.pop()
        self.library.known[function] = found
        return found

    def body(self) -> str:
        """Return the text between a function's braces. All local names are declared first, as in Python."""
        text, ends = self.block(self.source.tree.body)
        if not ends and not self.trader:
            self.refuse(self.source.tree, "may end without a value; return a number at its end")
        names = [name for name in self.source.locals if name not in self.source.arguments]
        new = [local_in_cpp(name, self.source.locals[name]) for name in names]
        new += [f"c_{number + 1}" for number in range(self.chains)]
        declared = f"  int32_t {', '.join(f'{name} = 0' for name in new)};\n" if new else ""
        return declared + text + ("" if ends else "  return no_order();\n")

    def function(self, name: str, body: str) -> str:
        """Return the whole definition."""
        said = _TRADER if self.words.quote is None else _POLICY
        takes = said if self.trader else ", ".join(f"int32_t {self.local(each)}" for each in self.source.arguments)
        return f"KS_RULE {'Order' if self.trader else 'int32_t'} {name}({takes}) {{\n{body}}}\n"

    def length(self, text: str) -> int:
        """Return the characters of a text with the functions that it calls, if they are not too many."""
        length = sum(len(line.lstrip()) for line in text.splitlines()) + self.called
        if length > MOST_TEXT:
            allowed = f"at most {MOST_TEXT} characters of C++, with the functions that it calls in their places"
            self.refuse(self.source.tree, f"expected {allowed}, got {length}: use loops")
        return length

    def block(self, statements: list[ast.stmt]) -> tuple[str, bool]:
        """Return the text, and whether it always returns."""
        text, ends = "", False
        for node in statements:
            self.enter(node)
            here, returns = self.statement(node)
            self.depth -= 1
            ends = ends or returns
            text += "".join(f"  {line}\n" for line in here.splitlines())
        return text, ends

    def statement(self, node: ast.stmt) -> tuple[str, bool]:
        """Return the text, and whether it always returns."""
        if isinstance(node, ast.Pass):
            return "", False
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            return self.assignment(node), False
        if isinstance(node, ast.If):
            return self.branches(node)
        if isinstance(node, ast.For):
            return self.loop(node), False
        if isinstance(node, ast.Return):
            if self.trader:
                return f"return {self.order(node.value)};", True
            return f"return {self.number(node.value or self.refuse(node, 'returns nothing; return a number'))};", True
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return "", False  # a docstring
            if type(node.value) not in self._writers:
                self.refuse_kind(node.value)
            self.refuse(node, f"got {self.source.quote(node)}, which has no effect; assign it, or remove it")
        self.refuse_kind(node)

    def branches(self, node: ast.If) -> tuple[str, bool]:
        """Return an `if`. After it has a value what has one at the end of each branch that ends there."""
        condition, before = self.number(node.test), self.has
        self.has = set(before)
        yes, yes_ends = self.block(node.body)
        then, self.has = self.has, set(before)
        no, no_ends = self.block(node.orelse)
        if not yes_ends:
            self.has = then if no_ends else then & self.has
        return f"if ({condition}) {{\n{yes}}} else {{\n{no}}}", yes_ends and no_ends

    def assignment(self, node: ast.Assign | ast.AugAssign) -> str:
        """Return an assignment to a local name or to memory."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        target = targets[0]
        if len(targets) > 1 or isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
            self.refuse(node, "assigns several names; assign one per line")
        if isinstance(target, ast.Name) and self.trader and target.id in self.source.arguments:
            self.refuse(target, f"expected another name, got an assignment to {target.id!r}")
        is_memory = isinstance(target, ast.Attribute) and self.is_argument(target.value, self.own)
        if not (isinstance(target, ast.Name) or is_memory):
            said = self.source.quote(target)
            allowed = f"local names, and memory of {self.own!r}" if self.trader else "local names"
            self.refuse(target, f"expected assignments to {allowed}, got one to {said}")
        if isinstance(target, ast.Attribute) and target.attr in self.words.parameters:
            self.refuse(target, f"writes the parameter {target.attr!r}; what changes is memory: declare it as such")
        value = self.number(node.value)
        if isinstance(node, ast.AugAssign):
            value = self.operation(node, node.op, self.number(target), value)
        if isinstance(target, ast.Name):
            self.has.add(target.id)
        return f"{self.number(target)} = {value};"

    def loop(self, node: ast.For) -> str:
        """Return a loop. Its counter has a name of its own: Python's loops do not mind what is written to theirs."""
        if not isinstance(node.target, ast.Name) or node.orelse:
            self.refuse(node, "expected for NAME in range(n) without else, got another loop")
        if self.trader and node.target.id in self.source.arguments:
            self.refuse(node.target, f"expected another name, got an assignment to {node.target.id!r}")
        call = node.iter
        is_range = isinstance(call, ast.Call) and self.source.outer(call.func) is range and not call.keywords
        bounds = [self.constant(part) for part in call.args] if is_range else []  # type: ignore[attr-defined]
        known = [bound for bound in bounds if bound is not None]
        if not 1 <= len(known) == len(bounds) <= 3 or known[2:] == [0]:
            self.refuse(node, "loops over something else than range of constants; write for i in range(8)")
        turns = range(*known)
        self.spend(node, len(turns))
        previous, before = self.times, set(self.has)
        self.times *= len(turns)
        self.loops += 1
        counter, name = f"i_{self.loops}", self.local(node.target.id)
        self.has.add(node.target.id)
        body, ends = self.block(node.body)
        self.times = previous
        if not turns:
            self.has = before  # nothing in it has happened
        elif ends:
            self.has = before | {node.target.id}
        start, step = self.literal(node, turns.start), self.literal(node, turns.step)
        here = f"{name} = agent::add({start}, agent::multiply({step}, {counter}));"
        return f"for (int32_t {counter} = 0; {counter} < {len(turns)}; ++{counter}) {{\n  {here}\n{body}}}"

    def order(self, node: ast.expr | None) -> str:
        """Return what a trader, or a policy, returns."""
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return "no_order()"
        if isinstance(node, ast.IfExp):
            self.enter(node)
            text = f"({self.number(node.test)} ? {self.order(node.body)} : {self.order(node.orelse)})"
            self.depth -= 1
            return text
        if self.words.quote is not None:
            return self.orders(node)
        made = self.source.outer(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or (made is not self.words.order and made is not self.words.no_order):
            self.refuse(node, f"returns {self.source.quote(node)}; return ks.order(...) or ks.no_order()")
        if made is self.words.no_order:
            return "no_order()" if not (node.args or node.keywords) else self.refuse(node, "got numbers for no order")
        given = self._given(node, _ORDER, "an order")
        if not set(_ORDER[:3]) <= set(given):
            self.refuse(node, "got an order without side, tick and quantity; write ks.order(side, tick, quantity)")
        return f"order_of({', '.join(self.number(given[name]) if name in given else '0' for name in _ORDER)})"

    def orders(self, node: ast.expr) -> str:
        """Return what a policy returns: a ladder of levels, what keeps all, or nothing."""
        made = self.source.outer(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or made is None:
            self.refuse(node, f"returns {self.source.quote(node)}; return ks.quote(...), ks.quotes(...) or ks.keep()")
        if made is self.words.keep or made is self.words.no_order:
            if node.args or node.keywords:
                self.refuse(node, f"expected nothing in {self.source.quote(node.func)}(), got numbers")
            return "keep_orders()" if made is self.words.keep else "no_order()"
        levels = node.args if made is self.words.quotes else [node]
        if node.keywords and made is self.words.quotes or not 1 <= len(levels) <= MOST_LEVELS:
            self.refuse(node, f"expected 1 to {MOST_LEVELS} levels in ks.quotes(ks.quote(...), ...)")
        self.library.levels = max(self.library.levels, len(levels))
        return f"orders_of({', '.join(map(self.level, levels))})"

    def level(self, node: ast.expr) -> str:
        """Return a level of a ladder."""
        if not isinstance(node, ast.Call) or self.source.outer(node.func) is not self.words.quote:
            self.refuse(node, f"got {self.source.quote(node)} as a level; write ks.quote(...)")
        given = self._given(node, _QUOTE, "a quote")
        return f"level_of({', '.join(self.number(given[name]) if name in given else '0' for name in _QUOTE)})"

    def _given(self, node: ast.Call, names: tuple[str, ...], what: str) -> dict[str, ast.expr]:
        """Return the arguments of what makes orders, by name."""
        given = dict(zip(names, node.args, strict=False))
        for keyword in node.keywords:
            if keyword.arg not in names or keyword.arg in given:
                self.refuse(node, f"expected {', '.join(names)}, each once, got {keyword.arg or '**'!r} in {what}")
            given[keyword.arg] = keyword.value
        if len(node.args) > len(names):
            self.refuse(node, f"expected {', '.join(names)}, got {len(node.args)} numbers in {what}")
        return given
