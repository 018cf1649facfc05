"""Integer operations that keep their width.

Numba widens every integer expression to 64 bits, which halves what a vector register holds; these
intrinsics are the machine's own wrap-around operations on two operands of one width.
"""

from __future__ import annotations

from typing import Any

from lcstore.compiling.jit import intrinsic


def _binary(name: str) -> Any:
    def typed(typingctx: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args)

        return a(a, a), generate

    typed.__name__ = name
    return intrinsic(typed)


#: ``wrap_add(a, b)``, ``wrap_sub(a, b)``, ``wrap_mul(a, b)``: modulo 2**width.
wrap_add = _binary("add")
wrap_sub = _binary("sub")
wrap_mul = _binary("mul")
#: ``shift_right(a, b)``: arithmetic shift; `b` must be less than the width.
shift_right = _binary("ashr")


@intrinsic
def trailing_zeros(typingctx: Any, a: Any) -> Any:
    """Count the zero bits below the lowest set bit of a non-zero integer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(_boolean(), True))

    return a(a), generate


@intrinsic
def bit_count(typingctx: Any, a: Any) -> Any:
    """Count the bits of an integer that are set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return a(a), generate


@intrinsic
def leading_zeros(typingctx: Any, a: Any) -> Any:
    """Count the zero bits above the highest set bit of an integer: all of them for zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], context.get_constant(_boolean(), False))

    return a(a), generate


def _boolean() -> Any:
    from numba import types

    return types.boolean
