"""The sources of a program's functions: syntax trees, where in files they are, and what the names in them stand for.

Python has compiled the function already, and does not keep its text. The text is read from its file, and must compile
to the same instructions: a file may have changed since, and a decorator may have put another function in its place.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dataclasses
import dis
import enum
import inspect
import numbers
import operator
import tokenize
import types
from typing import Any, NoReturn, cast

from kineticsim_env.agents.vocabulary import ProgramError, Vocabulary

_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
_LONGEST_QUOTE = 60  # characters


class Source:
    """The source of a plain function.

    Attributes:
        name: The function's name.
        tree: Its syntax tree.
        arguments: Names of its arguments.
        locals: Names of its arguments, and of all that is assigned anywhere in it, each with its index.

    Raises:
        TypeError: If it is not a plain function, or its source cannot be read.
        ProgramError: If it is too deep to be read.
    """

    def __init__(self, function: Any) -> None:
        if not inspect.isfunction(function):
            raise TypeError(f"agent: expected a plain Python function (def), got {function!r}")
        self._code, shown = function.__code__, function.__code__.co_name
        try:
            self._lines, self._first = inspect.getsourcelines(self._code)  # of the code: no decorator is looked through
            self.tree = self.parse()
            same = _instructions(self._compiled()) == _instructions(self._code)
        except (RecursionError, MemoryError):
            place = (self._code.co_filename, self._first, 1, self._lines[0].rstrip("\n"))
            raise ProgramError(f"{shown}: has an expression that is too deep; use several lines", place) from None
        except (OSError, SyntaxError, ValueError, IndexError, tokenize.TokenError) as error:
            raise TypeError(
                f"agent: the source of {shown} cannot be read; define it with def in a file or a notebook"
            ) from error
        if not same:
            raise TypeError(f"agent: the source of {shown} is not what Python has compiled; import it again")
        self.name = self.tree.name
        every = self.tree.args
        self.arguments = [argument.arg for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs)]
        stored = [
            node.id
            for statement in self.tree.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        self.locals = {name: index for index, name in enumerate(dict.fromkeys([*self.arguments, *stored]))}
        self._around = {**vars(builtins), **function.__globals__, **dict.fromkeys(self._code.co_freevars)}
        for name, cell in zip(self._code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._around[name] = cell.cell_contents
            except ValueError:  # a name of the function around it, which has no value yet
                continue

    def parse(self) -> ast.FunctionDef:
        """Return a new syntax tree. Its lines are counted from the text that `_text` returns."""
        (tree,) = ast.parse(self._text()).body
        if isinstance(tree, ast.If):
            (tree,) = tree.body
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"agent: expected a plain function (def), got {self._code.co_name!r}")
        return tree

    def _text(self) -> str:
        """Return the source, one line further down. A block around it may be indented, though its texts may not be."""
        return ("if 1:\n" if self._lines[0][:1].isspace() else "\n") + "".join(self._lines)

    def _compiled(self) -> types.CodeType:
        """Return the code of the source, without what is done at its place: decorators, defaults, annotations."""
        bare = self.parse()
        every = bare.args
        bare.decorator_list, bare.returns, every.defaults = [], None, []
        every.kw_defaults = [None] * len(every.kwonlyargs)
        for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg):
            if argument is not None:
                argument.annotation = None
        own = "pass" if bare.name in self._code.co_freevars else f"global {bare.name}"
        around = ast.parse(f"def around({', '.join(self._code.co_freevars)}): {own}")
        cast(ast.FunctionDef, around.body[0]).body.append(bare)
        module = compile(around, "", "exec", flags=self._code.co_flags & _FUTURES, dont_inherit=True)
        (outer,) = (part for part in module.co_consts if inspect.iscode(part))
        return next(part for part in outer.co_consts if inspect.iscode(part))

    # What names stand for --------------------------------------------------------------------------------------------

    def outer(self, node: ast.AST) -> Any:
        """Return what a name of the surroundings stands for, or an attribute of a module or enum there; else None."""
        if isinstance(node, ast.Name):
            return None if node.id in self.locals else self._around.get(node.id)
        if isinstance(node, ast.Attribute):
            around = self.outer(node.value)
            of_numbers = isinstance(around, type) and issubclass(around, (enum.IntEnum, enum.IntFlag))
            return getattr(around, node.attr, None) if inspect.ismodule(around) or of_numbers else None
        return None

    def outer_number(self, node: ast.AST) -> int | None:
        """Return the whole number that a name of the surroundings stands for, or None."""
        value = self.outer(node)
        return operator.index(value) if isinstance(value, numbers.Integral) else None

    # What is wrong ---------------------------------------------------------------------------------------------------

    def quote(self, node: ast.AST) -> str:
        """Return a part of the source as its writer has it: its first line, cut where it is long."""
        text = ast.get_source_segment(self._text(), node) or type(node).__name__
        line, *further = text.splitlines()
        cut = line[:_LONGEST_QUOTE]
        return repr(cut + "..." if cut != line or (further and isinstance(node, ast.expr)) else cut)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        """Raise ProgramError that shows a part of the source."""
        number = getattr(node, "lineno", 2) - 2
        text = self._lines[number].rstrip("\n")
        column = len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
        path = inspect.getsourcefile(self._code) or self._code.co_filename
        raise ProgramError(f"{self.name}: {message}", (path, self._first + number, column + 1, text))


@dataclasses.dataclass(frozen=True)
class FunctionRead:
    """A function of a program."""

    name: str  # its name in C++
    source: Source  # what was read
    text: str  # its definition in C++
    turns: int  # turns of its loops and calls within it
    length: int  # characters of its text with the functions that it calls in their places


@dataclasses.dataclass
class Library:
    """The functions of one program."""

    vocabulary: Vocabulary  # what they can name
    # those that are read, in the order of their texts
    known: dict[Any, FunctionRead] = dataclasses.field(default_factory=dict)
    within: list[Any] = dataclasses.field(default_factory=list)  # those that are being read
    levels: int = 0  # the most that a policy's ladder has


def _instructions(code: types.CodeType) -> list[Any]:
    """Return what a function does: its instructions, names and constants, but no places in a file.

    How a method is called depends on what else is compiled with a function, such as the import of a module. So places
    in the code are counted in those instructions that are the same either way.
    """
    constants = [None if inspect.iscode(value) else repr(value) for value in code.co_consts]
    jumps = {*dis.hasjabs, *dis.hasjrel}
    counted, places = [], {}
    for each in dis.get_instructions(code):
        places[each.offset] = len(counted)
        if each.opname not in ("PUSH_NULL", "PRECALL", "EXTENDED_ARG", "NOP"):
            counted.append(each)
    done = [
        (
            {"LOAD_METHOD": "LOAD_ATTR"}.get(each.opname, each.opname),
            places[each.argval] if each.opcode in jumps else None if inspect.iscode(each.argval) else repr(each.argval),
        )
        for each in counted
    ]
    return [done, code.co_names, code.co_varnames, code.co_freevars, constants]
