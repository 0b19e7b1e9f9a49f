"""Parses and evaluates constraints between knobs: `decode_threads + demux_threads <= 4`.

A constraint is a Python expression of knobs, numbers and words, with arithmetic, comparison and `and`,
`or`, `not`. Python's parser reads it, and this module computes it. Nothing is passed to `eval`, and
nothing can be called.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headspace.tune.errors import TuneError

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

#: Other nodes that an expression may have.
_ALLOWED = (ast.BoolOp, ast.boolop, ast.Name, ast.expr_context)

#: Names of constants.
_CONSTANTS = {"yes": True, "no": False, "true": True, "false": False}


class Constraint:
    """A condition on configurations."""

    def __init__(self, text: str) -> None:
        """Reads an expression.

        Raises:
            TuneError: If it is not an expression, or contains anything but arithmetic, comparison and
                logic.
        """
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise TuneError(
                f"the constraint `{text}` is not an expression: {error} (write for example `a + b <= 4`)"
            ) from error
        self._check(self._tree)

    def _check(self, node: ast.AST) -> None:
        match node:
            case ast.BinOp() | ast.UnaryOp():
                known = type(node.op) in _OPERATORS
            case ast.Compare():
                known = all(type(op) in _OPERATORS for op in node.ops)
            case ast.Constant():
                known = isinstance(node.value, bool | int | float | str)
            case _:
                known = isinstance(node, _ALLOWED) or type(node) in _OPERATORS
        if not known:
            written = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise TuneError(
                f"`{written}` is not allowed in the constraint `{self.text}` (allowed are knobs, numbers, "
                "words in quotes, `+ - * / // %`, comparisons, `and`, `or` and `not`)"
            )
        for child in ast.iter_child_nodes(node):
            self._check(child)

    def check_names(self, knobs: Collection[str]) -> None:
        """Checks that all names are knobs.

        Raises:
            TuneError: If a name is not a knob. The message has the name.
        """
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name) and node.id not in knobs and node.id not in _CONSTANTS:
                raise TuneError(
                    f"the constraint `{self.text}` contains `{node.id}`, which is not a knob (if it is a "
                    f"word, write it in quotes: `'{node.id}'`)"
                )

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Whether a configuration meets the constraint.

        Raises:
            TuneError: If it cannot be computed, for example because of a word in a sum or a division by
                zero.
        """
        try:
            return bool(self._value(self._tree, config))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise TuneError(
                f"the constraint `{self.text}` cannot be computed: {error} (check the types of its knobs, "
                "and that no divisor is zero)"
            ) from error

    def _value(self, node: ast.expr, config: Mapping[str, Any]) -> Any:
        match node:
            case ast.BoolOp(op=ast.And()):
                return all(self._value(part, config) for part in node.values)
            case ast.BoolOp():
                return any(self._value(part, config) for part in node.values)
            case ast.BinOp():
                operate = _OPERATORS[type(node.op)]
                return operate(self._value(node.left, config), self._value(node.right, config))
            case ast.UnaryOp():
                return _OPERATORS[type(node.op)](self._value(node.operand, config))
            case ast.Compare():
                sides = [self._value(side, config) for side in (node.left, *node.comparators)]
                return all(
                    _OPERATORS[type(op)](left, right)
                    for op, left, right in zip(node.ops, sides, sides[1:])
                )
            case ast.Name():
                return config[node.id] if node.id in config else _CONSTANTS[node.id]
            case ast.Constant():
                return node.value
        raise TypeError(type(node).__name__)
