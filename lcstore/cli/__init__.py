"""The command line. `main` is what the ``lcstore`` script calls; nothing is imported before it is needed."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> None:
    """Run the command line, and exit: 0 good, 1 problem found, 2 wrong usage; 128 and more by a signal."""
    for name in ("SIGTERM", "SIGHUP"):  # not every system has both
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one
            with suppress(ValueError):  # only the main thread of a process may
                signal.signal(number, _end)
    try:
        from lcstore.cli.app import app

        app(prog_name="lcstore")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _end(number: int, _: object) -> NoReturn:
    """Leave as from Ctrl-C: what is half written is taken away. A second signal ends at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)
