"""Memory that is read and written unchecked: whoever does so makes sure of many places at once."""

from __future__ import annotations

from typing import Any

from lcstore.compiling.jit import intrinsic


@intrinsic
def item(typingctx: Any, array: Any, at: Any) -> Any:
    """Return an element of a contiguous array, unchecked."""
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.load(builder.gep(source.data, [args[1]]))

    return (array.dtype(array, types.uint64), generate) if array.layout == "C" else None


@intrinsic
def copy_row(typingctx: Any, table: Any, row: Any, array: Any, at: Any) -> Any:
    """Copy a row of ``uint64[n, 2]`` to the 16 bytes of an array from `at` on, unchecked."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        both = ir.VectorType(ir.IntType(64), 2).as_pointer()
        source = context.make_array(signature.args[0])(context, builder, args[0])
        target = context.make_array(signature.args[2])(context, builder, args[2])
        first = builder.shl(args[1], ir.Constant(args[1].type, 1))
        words = builder.load(builder.bitcast(builder.gep(source.data, [first]), both), align=8)
        builder.store(words, builder.bitcast(builder.gep(target.data, [args[3]]), both), align=1)
        return context.get_dummy_value()

    contiguous = table.layout == array.layout == "C"
    return (types.void(table, types.uint64, array, types.uint64), generate) if contiguous else None


@intrinsic
def put_eight(typingctx: Any, array: Any, at: Any, word: Any) -> Any:
    """Write a ``uint64``, lowest byte first, to the bytes of an array from `at` on, unchecked."""
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(target.data, [args[1]]), args[2].type.as_pointer())
        builder.store(args[2], place, align=1)
        return context.get_dummy_value()

    return (types.void(array, types.uint64, types.uint64), generate) if array.layout == "C" else None
