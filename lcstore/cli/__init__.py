"""The command line. `main` is what the ``lcstore`` script calls; nothing is imported before it is needed."""

from __future__ import annotations


def main() -> None:
    """Run the command line, and exit: 0 good, 1 problem found, 2 wrong usage."""
    from lcstore.cli.app import app

    app(prog_name="lcstore")
