"""Texts for people: URLs without the passwords and signatures in them, and no control codes."""

from __future__ import annotations

import re
from typing import Final

#: ``user:password@``, with what a URL should have escaped. Digits and a slash are a port.
_PASSWORD: Final = re.compile(r"(:/{1,2}[^/@:\s]*):(?!\d+(?:[/\s]|$))(?:[^\s/]*@|[^\s@]*@)")
#: What a URL of the web says after its path: signatures and tokens, as a rule.
_QUERY: Final = re.compile(r"(https?://[^?\s'\"]*)\?[^\s'\"]*?(?=::|[\s'\"]|$)")


def without_secrets(text: str) -> str:
    """Return a text with the passwords and the queries of the URLs in it struck out."""
    return _QUERY.sub(r"\1?***", _PASSWORD.sub(r"\1:***@", text))


def harmless(error: Exception) -> Exception:
    """Return an error, or one in its place where its text has secrets: tracebacks print causes too."""
    return error if without_secrets(str(error)) == str(error) else OSError(said_by(error))


def said_by(error: Exception) -> str:
    """Return what kind of error it is, and what it says, if it says anything, without secrets."""
    return f"{type(error).__name__}: {without_secrets(str(error))}".removesuffix(": ")


def printable(text: str) -> str:
    """Return `text` without secrets, and without whatever could steer a terminal.

    It may come from a stranger's store.
    """
    text = without_secrets(text)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
