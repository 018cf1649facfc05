"""What a kernel returns: zero or more is a count that is right, less than zero says why there is none."""

from __future__ import annotations

from typing import Final

OK: Final = 0
#: A stream did not end where the directory says it does.
LENGTH: Final = -2
#: A symbol, run or escape lies outside what the frame allows.
SYMBOL: Final = -3
#: An output array is too small for what has to be written.
SPACE: Final = -4
#: A value is not finite, or lies outside the grid.
RANGE: Final = -5
#: Code lengths that do not make a complete prefix code.
TABLE: Final = -6
