"""The version, in the one place that says it."""

from typing import Final

__version__ = "0.1.0"
SOFTWARE: Final = f"lcstore {__version__}"
