"""Objects that a web server shows: read through its pages of links."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from lcstore.errors import StorageError
from lcstore.storage.finding import MARKER
from lcstore.storage.remote import FsspecBackend


class WebBackend(FsspecBackend):
    """Objects below a URL of the web, of a server that lists folders as links."""

    _lists_folders = False

    def _names(self, top: str) -> dict[str, int | None]:
        found: list[str] = []
        pending = [top]
        while pending:
            for path in self._links(pending.pop()):
                (pending if path.endswith("/") else found).append(path)
        if not found and not self._lists_folders:
            # A server that does not list answers with some page, with an empty one, or not at all.
            if f"{self._root}/{MARKER}" not in self._links(self._root):
                if not self._has_marker():
                    return {}
                raise StorageError(
                    f"{self._url} does not list what is in its folders: have the server do so (nginx by "
                    "`autoindex on`, Python's http.server always does), or read a copy of the store"
                )
            self._lists_folders = True
        return dict.fromkeys(found)  # pages tell no lengths that can be relied on

    def _has_marker(self) -> bool:
        try:
            self._ask("info", f"{self._root}/{MARKER}")
        except FileNotFoundError:
            return False
        return True

    def _links(self, folder: str) -> list[str]:
        """Return what lies in a folder; folders end with a slash."""
        folder = folder.rstrip("/")
        try:
            entries: list[dict[str, Any]] = self._ask("ls", f"{folder}/", detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        paths = {unquote(str(entry["name"])).replace("//", "/").replace(":/", "://", 1) for entry in entries}
        # Pages also link to themselves, sorted otherwise, and to the folder above. The folder may be quoted.
        plain = unquote(folder)
        return [f"{folder}{path.removeprefix(plain)}" for path in paths if _lies_in(path, plain)]


def _lies_in(path: str, folder: str) -> bool:
    name = path.removeprefix(f"{folder}/").rstrip("/")
    return path.startswith(f"{folder}/") and name != "" and name[0] not in ".?#" and "/" not in name
