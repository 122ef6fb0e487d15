"""Every small mistake that can be made in a module: one comparison, condition, number or statement.

Place in the data path: `campaign` draws some of the edits of all product modules by a seed, and
`arming` applies one of them to its module as that is imported. Pure: source text in, text out.

Invariants: an edit changes one expression or statement, and what comes of it compiles; the first
thing that the changed code does is to call `executed_mutant`, a builtin that `arming` installs and
that returns False. Nothing is edited that no user could notice: annotations, assertions, log calls,
the texts of errors, constants of modules and classes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import msgspec

__all__ = ["MARK", "Edit", "edited", "edits_of"]

MARK: Final = "executed_mutant"
_NEGATED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SHIFTED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_SWAPPED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNSEEN_CALLS: Final = ("_log.", "logging.", "super().")
_UNTOUCHED: Final = (
    *(ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.pattern),
)
_Functions = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Characters from `start` to `end` become `after`; `before` is what stands there now."""

    kind: str
    function: str
    line: int
    start: int
    end: int
    before: str
    after: str


def edited(text: str, edit: Edit) -> str:
    """Apply an edit. Raises ValueError where the text is not the one that it was made from."""
    if text[edit.start : edit.end] != edit.before:
        raise ValueError(f"line {edit.line} is not {edit.before!r}")
    return text[: edit.start] + edit.after + text[edit.end :]


def edits_of(text: str) -> list[Edit]:
    """Return the edits of a module, in the order of its text."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def place(line: int, column: int) -> int:  # the tree counts bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for function, kind, node, after in _changes(ast.parse(text).body, ""):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = place(node.lineno, node.col_offset)
        end = place(node.end_lineno, node.end_col_offset)
        found.append(
            Edit(
                kind=kind,
                function=function,
                line=node.lineno,
                start=start,
                end=end,
                before=text[start:end],
                after=f"({MARK}() or {after})" if after else f"{MARK}()",
            )
        )
    return sorted(found, key=lambda edit: (edit.start, edit.end, edit.after))


_Change = tuple[str, str, ast.expr | ast.stmt, str]  # function, kind, what is replaced, by what


def _changes(body: list[ast.stmt], within: str) -> Iterator[_Change]:
    """Yield the changes in functions and methods of a module or class."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _changes(statement.body, f"{within}{statement.name}.")
        elif isinstance(statement, _Functions):
            for inner in statement.body:
                for kind, node, after in _of(inner):
                    yield f"{within}{statement.name}", kind, node, after


def _of(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the changes in a statement or expression and all that it holds."""
    if isinstance(node, _UNTOUCHED):
        return
    if isinstance(node, ast.Expr) and (
        not isinstance(node.value, ast.Call | ast.Await)
        or ast.unparse(node.value).startswith(_UNSEEN_CALLS)
    ):
        return
    if isinstance(node, ast.stmt):
        yield from _statement(node)
    elif isinstance(node, ast.expr):
        yield from _expression(node)
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "args"} and not isinstance(
            node, ast.Call
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _of(child)


def _statement(node: ast.stmt) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete():
            yield "statement dropped", node, ""
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement dropped", node, ""
        case ast.If(test=test) | ast.While(test=test):
            yield from _negated(test)
        case _:
            pass


def _expression(node: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    match node:
        case ast.Compare(ops=[op], left=left, comparators=right):
            for kind, table in (("comparison negated", _NEGATED), ("bound shifted", _SHIFTED)):
                if type(op) in table:
                    yield kind, node, _text(ast.Compare(left, [table[type(op)]()], right))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and, or", node, _text(ast.BoolOp(other, values))
        case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=left, right=right):
            if not any(_is_text(side) for side in (left, right)):
                other_op = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
                yield "plus, minus", node, _text(ast.BinOp(left, other_op, right))
        case ast.IfExp(test=test):
            yield from _negated(test)
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named) if name in _SWAPPED:
            yield "min, max", node, _text(ast.Call(ast.Name(_SWAPPED[name]), given, named))
        case ast.Constant(value=bool() as value):
            yield "constant", node, str(not value)
        case ast.Constant(value=int() as value):
            yield "constant", node, str(value + 1)
        case _:
            pass


def _negated(test: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    """Negate a condition; comparisons are negated, and shifted, where they stand."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield "condition negated", test, _text(test.operand)
    elif not isinstance(test, ast.Compare) or type(test.ops[0]) in _SHIFTED:
        yield "condition negated", test, _text(ast.UnaryOp(ast.Not(), test))


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
