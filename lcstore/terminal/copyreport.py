"""What ``lcstore cp`` tells of a copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lcstore.terminal.table import counted, size

if TYPE_CHECKING:
    from lcstore.copying.copy import CopyReport


def copied(source: str, target: str, report: CopyReport) -> Iterator[str]:
    """Yield what was copied, what the copy keeps besides, and what to do next; `source`, `target`: quoted."""
    retired = f", {report.retired} that were let go of" if report.retired else ""
    copied = f"{counted(report.objects, 'object')}, {size(report.nbytes)}"
    checked = ", lengths and hashes checked" if report.objects else ""
    replaced = f", {report.replaced} of them in the place of damaged ones" if report.replaced else ""
    how = "their hashes agree" if report.checked else "their lengths agree; `--check` compares hashes"
    passed = f"; {report.passed_over} objects were there already ({how})" if report.passed_over else ""
    yield f"Copied: {counted(report.states, 'state')}{retired}, {copied}{checked}{replaced}{passed}."
    if report.older:
        yield (
            f"{counted(report.older, 'state')} stay there that {source} does not keep: it let go of them "
            "since an earlier copy, or they were saved there. To let go of some there, where RULE keeps all "
            f"that it is to have: lcstore maintain {target} --keep RULE"
        )
    if report.let_go or report.let_go_in_part:
        part = f", and parts of {report.let_go_in_part}" if report.let_go_in_part else ""
        yield (
            "Let go of there, which no copy takes back: "
            f"{counted(report.let_go, 'more state')}{part}. To see them: lcstore ls {target} --retired"
        )
        yield f"To have them, where TO is an empty place: lcstore cp {source} TO"
        if report.let_go:
            yield f"To have one there again that was not damaged: lcstore pin {target}@NODE"
    if report.kept:
        yield (
            f"{counted(report.kept, 'state')} of which a repair of the store let go, or of parts of which, "
            f"stay there as they were. To have them, where TO is an empty place: lcstore cp {target} TO"
        )
    yield f"To look at it: lcstore ls {target}"
