"""The aliases for arrays and for bytes: dtypes and shapes are said in words, where they matter."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Buffer: TypeAlias = "bytes | bytearray | memoryview[Any]"
