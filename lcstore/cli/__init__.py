"""The command line. `main` is what the ``lcstore`` script calls; nothing is imported before it is needed."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

from lcstore.jobs.deadline import end_soon

#: Seconds that targets have for what is asked of them once a command is told to end.
_LAST: Final = 3.0


def main() -> None:
    """Run the command line, and exit: 0 good, 1 problem found, 2 wrong usage; 128 and more by a signal."""
    usual = (signal.SIG_DFL, signal.default_int_handler)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # not every system has all
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in usual:  # `nohup` ignores one
            with suppress(ValueError):  # only the main thread of a process may
                signal.signal(number, _end)
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # a daemon has closed it: nobody reads, as of a pipe that is closed
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    try:
        from lcstore.cli.app import app

        app(prog_name="lcstore")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _end(number: int, _: object) -> NoReturn:
    """Leave: what is half written is taken away, if its target answers. A second signal ends at once."""
    signal.signal(number, signal.SIG_DFL)
    end_soon(_LAST)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
