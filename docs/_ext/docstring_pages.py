"""Sphinx extension: the package's docstrings in the site's reference, and links between its pages.

Docstrings here are Google's sections below a head in Markdown. (The head of a task is a page of its own:
scripts/pages/environments.py writes it.) It gives

- for autodoc, docstrings without what reStructuredText cannot read: of a head with headings or a table only what is
  before them stays, code fences become code blocks, and the comments behind the fields of a NamedTuple or dataclass its
  attributes;
- for links to the README and the changelog the site's own pages;
- the default role: in single backticks the name of a page or of an object is a link where the site has it, else code.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyXRefRole
from sphinx.util.nodes import make_refnode

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_HEADING = re.compile(r"^#+ |^\|")  # or a table
_FENCE = re.compile(r"^(\s*)```(\w*)$")
_FIELD = re.compile(r"^    (\w+): [^#\n]*  # (.+)$", re.MULTILINE)
_LETTER = re.compile(r"^(:param [^:]+: )([A-Z])\.$")
_PAGE = re.compile(r"(?:docs|examples)/([\w/]+?)(?:/README)?\.md")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def for_autodoc(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite one docstring for autodoc, in place, before napoleon sees it."""
    if lines and lines[0].startswith("Create new instance of "):  # what Python says of a NamedTuple's __new__
        lines.clear()
        return
    head = next((index for index, line in enumerate(lines) if _HEADING.match(line)), None)
    if head is not None:
        tail = next((index for index, line in enumerate(lines) if _SECTION.match(line)), len(lines))
        lines[head:tail] = [""]
    code_indent = None
    result: list[str] = []
    for line in lines:
        fence = _FENCE.match(line)
        if fence and code_indent is None:
            code_indent = fence[1]
            result += ["", f"{code_indent}.. code-block:: {fence[2] or 'text'}", ""]
        elif fence:
            code_indent = None
            result.append("")
        else:
            result.append(line if code_indent is None else f"    {line}")
    if what == "class" and not any(line.startswith("Attributes:") for line in result):
        result += fields_with_comments(obj)
    lines[:] = result


def after_napoleon(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Mend two readings: "The markets: ..." of a property is no type and its text, "M." no start of a list."""
    if what == "property":
        lines[:] = [*inspect.getdoc(obj).splitlines(), ""]
    lines[:] = [_LETTER.sub(r"\1\\\2.", line) for line in lines]


def fields_with_comments(found: type) -> list[str]:
    """Return an attributes section made of the comments behind the fields of a NamedTuple or dataclass."""
    if not (dataclasses.is_dataclass(found) or hasattr(found, "_fields")):
        return []
    fields = _FIELD.findall(inspect.getsource(found))
    return ["", "Attributes:", *(f"    {name}: {comment}" for name, comment in fields)] if fields else []


class Name(PyXRefRole):
    """The default role: see the top of this file."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return code, which links if it is a name."""
        if page := _PAGE.fullmatch(self.text):
            link = addnodes.pending_xref(
                refdomain="std", reftype="doc", refexplicit=True, reftarget=f"/{page[1]}", refdoc=self.env.docname
            )
            link += nodes.inline(self.rawtext, self.text)
            return [link], []
        if not _NAME.fullmatch(self.text):
            return [nodes.literal(self.rawtext, self.text, classes=["code"])], []
        return super().run()

    def result_nodes(self, document: Any, env: Any, node: Any, is_ref: bool) -> Any:
        """Mark the link as one that may fail."""
        if isinstance(node, addnodes.pending_xref):
            node["reftype"], node["may_fail"] = "obj", True
        return [node], []


def resolve(app: Sphinx, env: Any, node: addnodes.pending_xref, contnode: nodes.Element) -> nodes.Node | None:
    """Resolve a name that the Python domain did not find where it was said, if the site has just one such object."""
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].rpartition(".")[2]
    ours = node.get("may_fail") or node["reftarget"].startswith("kineticsim_env.")
    found = {}
    for name, entry in env.domains["py"].objects.items():
        if ours and not entry.aliased and entry.objtype in ("class", "exception", "function", "module"):
            if name == node["reftarget"] or name.rpartition(".")[2] == last:
                found[name] = entry
    if len(found) == 1:
        ((name, entry),) = found.items()
        return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, name)
    return contnode if node.get("may_fail") else None


def from_outside(app: Sphinx, docname: str, source: list[str]) -> None:
    """Lead links to the README and the changelog, which are above docs/, to the site's own pages."""
    up = "../" * docname.count("/")
    for file, page in (("README.md", "index.md"), ("CHANGELOG.md", "changelog.md")):
        source[0] = source[0].replace(f"]({up}../{file}", f"]({up}{page}")


def skip_tuple_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of a NamedTuple as members; `fields_with_comments` has listed them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    app.add_role_to_domain("py", "name", Name())
    app.connect("autodoc-process-docstring", for_autodoc, priority=400)
    app.connect("autodoc-process-docstring", after_napoleon, priority=600)
    app.connect("autodoc-skip-member", skip_tuple_fields)
    app.connect("missing-reference", resolve)
    app.connect("source-read", from_outside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
