"""The version, in the one place that says it, and how to come to a later one."""

from typing import Final

__version__ = "0.1.0"
SOFTWARE: Final = f"lcstore {__version__}"
#: What reads a store that a later version wrote. No package index has lcstore: `pip` finds nothing newer.
UPGRADE: Final = "git pull && pip install . # in the checkout that lcstore was installed from"
