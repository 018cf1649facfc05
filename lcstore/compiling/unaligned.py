"""Memory that is written several bytes at a time."""

from __future__ import annotations

from typing import Any

from lcstore.compiling.jit import intrinsic


@intrinsic
def store_eight(typingctx: Any, array: Any, at: Any, word: Any) -> Any:
    """Write a ``uint64``, lowest byte first, to bytes from `at` on, if it fits there."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        eight = ir.Constant(args[1].type, 8)
        target = context.make_array(signature.args[0])(context, builder, args[0])
        size = builder.extract_value(target.shape, 0)
        fits = builder.and_(
            builder.icmp_unsigned(">=", size, eight),
            builder.icmp_unsigned("<=", args[1], builder.sub(size, eight)),
        )
        with builder.if_then(fits, likely=True):
            place = builder.gep(target.data, [args[1]])
            words = builder.bitcast(place, args[2].type.as_pointer())
            builder.store(args[2], words, align=1)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64), generate
