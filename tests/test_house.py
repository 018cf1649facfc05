"""How the project is laid out: what lies at its top, who imports whom, how large files and rooms are."""

import ast
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import lcstore

ROOT = Path(lcstore.__file__).parent
FILES = {
    ".".join(("lcstore", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
#: Of a file, of a room with all that is in it, and of files in one folder.
MOST_LINES, MOST_LINES_OF_A_ROOM, MOST_FILES = 400, 3_000, 22

#: What lies at the top, besides files whose names begin with a dot.
TOP = {"CHANGELOG.md", "LICENSE", "README.md", "benchmarks", "docs", "lcstore", "pyproject.toml", "tests"}

#: One idea at two levels: the first line of each file says so.
AT_TWO_LEVELS = {"factored.py", "grid.py", "scales.py"}


def imported(path: Path) -> set[str]:
    """Return the files of the library that a file imports, also for types alone or within a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path} imports relatively"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in FILES else node.module)
    return found & FILES.keys()


def circles(uses: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the groups of names that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in uses:
        seen: set[str] = set()
        pending = [start]
        while pending:
            for name in uses[pending.pop()] - seen:
                seen.add(name)
                pending.append(name)
        reached[start] = seen
    return {
        frozenset({name, *(other for other in reached[name] if name in reached[other])})
        for name in uses
        if name in reached[name]
    }


def lines(path: Path) -> int:
    return path.read_text().count("\n")


def test_nothing_else_lies_at_the_top():
    top = Path(__file__).parents[1]
    if not (top / ".git").exists():
        pytest.skip("this is no checkout")
    kept = subprocess.run(["git", "ls-files"], cwd=top, capture_output=True, text=True, check=True).stdout
    names = {line.partition("/")[0] for line in kept.splitlines()}
    assert {name for name in names if not name.startswith(".")} == TOP


def test_no_two_files_import_each_other():
    # The package itself names everything lazily, for its users: nobody inside imports it for that.
    uses = {name: imported(path) - {"lcstore"} for name, path in FILES.items() if name != "lcstore"}
    assert circles(uses) == set()


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == {
        frozenset({"b", "c"}),
        frozenset({"d"}),
    }


def test_no_file_is_two_files():
    assert {str(path): lines(path) for path in FILES.values() if lines(path) > MOST_LINES} == {}


def test_no_room_is_two_rooms():
    rooms, folders = Counter(), Counter()
    for path in FILES.values():
        folder = path.parent.relative_to(ROOT)
        folders[str(folder)] += 1
        rooms[folder.parts[:1]] += lines(path)
    assert {room: count for room, count in rooms.items() if count > MOST_LINES_OF_A_ROOM} == {}
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}


def test_no_two_files_share_a_name_by_accident():
    named = defaultdict(list)
    for path in FILES.values():
        # A command is named as what it calls.
        if path.name not in ("__init__.py", "__main__.py") and "commands" not in path.parts:
            named[path.name].append(path)
    twice = {name: paths for name, paths in named.items() if len(paths) > 1}
    assert twice.keys() == AT_TWO_LEVELS


def test_no_lock_is_held_for_all_objects_of_a_class():
    """Before Python 3.12 those of `functools.cached_property` are: a child of a fork may find one held."""
    told = {path.name for path in FILES.values() if "cached_property" in path.read_text()}
    assert told == {"like.py", "once.py"}  # what users have in their trees is looked for
