"""Names of tensors as parts of paths: the text form, without what paths, globs and URLs take for their own.

``~x`` and two hexadecimal digits stand for a character. No text form has that, so no two names share a path.

========================================================  ==========================
part of a name                                            part of a path
========================================================  ==========================
``layers.0.weight``, ``#0``, ``a~1b``                     the same
one with ``* ? [ ] : \\ < > | "`` or a control character    ``a*`` gives ``a~x2a``
``.``, ``..``, ``zarr.json``                              ``~x2e``, and so on
one that ends in ``.npy``                                 ``w.npy`` gives ``w~x2enpy``
no parts (the state is one tensor)                        ``~``
========================================================  ==========================
"""

from __future__ import annotations

import re
from typing import Final

from lcstore.state.names import Name, format_name

#: A state that is one tensor has no name.
NAMELESS: Final = "~"
_UNFIT: Final = re.compile(r'[\x00-\x1f\x7f*?\[\]:\\<>|"]')
_CODE: Final = re.compile(r"~x([0-9a-f]{2})")
#: What a folder or file of another kind is called, or a place in a tree.
_TAKEN: Final = frozenset([".", "..", "zarr.json"])


def quoted(name: Name) -> tuple[str, ...]:
    """Return the parts of the path of a name: ``("model", "a:b")`` gives ``("model", "a~x3ab")``."""
    return tuple(_quoted(format_name((part,))) for part in name) or (NAMELESS,)


def _quoted(text: str) -> str:
    found = _UNFIT.sub(_code, text)
    if found in _TAKEN:
        return found.replace(".", "~x2e")
    return f"{found.removesuffix('.npy')}~x2enpy" if found.endswith(".npy") else found


def _code(found: re.Match[str]) -> str:
    return f"~x{ord(found[0]):02x}"


def unquoted(text: str) -> str:
    """Return the text that is one part of a path: ``"val~1loss"`` gives ``"val/loss"``."""
    found = _CODE.sub(lambda code: chr(int(code[1], 16)), text)
    return found.replace("~1", "/").replace("~0", "~")
