"""The same function on `Int32`: constants become such numbers, and what is true or false 1 or 0.

It runs only after `Translation` has found nothing wrong, and is as near to the user's own text as can be: engines are
compared with it.
"""

from __future__ import annotations

import ast
from typing import Any

from kineticsim_env.agents.source import Library, Source


def of_ours(name: str) -> str:
    """Return a name that no user's can be: Python's compiler takes it from a tree, but not from a text."""
    return f"${name}"


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=of_ours(name), ctx=ast.Load()), args=list(arguments), keywords=[])


class OnInt32(ast.NodeTransformer):
    """One function on `Int32`."""

    def __init__(self, library: Library, source: Source, *, trader: bool) -> None:
        self.library, self.source, self.trader = library, source, trader

    def function(self, name: str) -> ast.FunctionDef:
        """Return its definition, without what belongs to the place of its own."""
        new = self.source.parse()
        new.name, new.decorator_list, new.returns = of_ours(name), [], None
        for argument in new.args.args:
            argument.annotation = None
        new.body = [self.visit(node) for node in new.body]
        if self.trader:
            new.body.append(ast.Return(value=_call("no_order")))
        return new

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """Write `return` as `return None`."""
        return ast.Return(value=self.visit(node.value or ast.Constant(value=None)))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Wrap a number; leave a docstring, and a probability. None is the order that is none."""
        if node.value is None:
            return _call("no_order")
        return _call("Int32", node) if isinstance(node.value, int) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Make 1 or 0 of it: Python's has the value of one of its parts."""
        self.generic_visit(node)
        return _call("truth", node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Make 1 or 0 of `not`, and leave the sign of a probability."""
        self.generic_visit(node)
        return _call("truth", node) if isinstance(node.op, ast.Not) else node

    def visit_For(self, node: ast.For) -> ast.For:
        """Count in `Int32`."""
        self.generic_visit(node)
        node.iter = _call("map", ast.Name(id=of_ours("Int32"), ctx=ast.Load()), node.iter)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:
        """Write `x += 1` as `x = x + 1`, whose right side is on `Int32`."""
        target: Any = node.target
        if isinstance(target, ast.Attribute):
            previous: Any = ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load())
        else:
            previous = ast.Name(id=target.id, ctx=ast.Load())
        value = ast.BinOp(left=self.visit(previous), op=node.op, right=self.visit(node.value))
        return ast.Assign(targets=[target], value=value)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Wrap what methods of the arguments return."""
        is_method = isinstance(node.func, ast.Attribute) and self._is_argument(node.func.value)
        if not is_method:
            self.generic_visit(node)
            return node
        node.args = [self.visit(part) for part in node.args]
        node.keywords = [self.visit(part) for part in node.keywords]
        return _call("Int32", node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Leave a local name."""
        return node if node.id in self.source.locals else self._of_surroundings(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Wrap what the arguments have; leave what is written."""
        if self._is_argument(node.value):
            return _call("Int32", node) if isinstance(node.ctx, ast.Load) else node
        return self._of_surroundings(node)

    def _is_argument(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.source.locals

    def _of_surroundings(self, node: ast.Name | ast.Attribute) -> ast.expr:
        """Replace what a name of the surroundings stands for: a number, a function of the program, or one of ours."""
        number = self.source.outer_number(node)
        if number is not None:
            return _call("Int32", ast.Constant(value=number))
        value, words = self.source.outer(node), self.library.vocabulary
        if isinstance(value, float):
            return ast.Constant(value=float(value))
        ours = {word: getattr(words, word) for word in ("order", "no_order", "quote", "quotes", "keep")}
        if known := [word for word, function in ours.items() if value is not None and value is function]:
            name = known[0]
        else:
            name = self.library.known[value].name if value in self.library.known else value.__name__
        return ast.Name(id=of_ours(name), ctx=ast.Load())
