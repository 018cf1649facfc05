"""``lcstore warm``: compile beforehand, as in a line of a Dockerfile."""

from __future__ import annotations

import time

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson


def warm(as_json: AsJson = False) -> None:
    """Compile the kernels now, so that no training waits for it. Later processes read the compiled ones."""
    with answering("", as_json, None, None) as answer:
        from lcstore.compiling.jit import say_nothing
        from lcstore.terminal.machine import about_kernels, cache
        from lcstore.terminal.warming import warm as compile_all

        answer.next = ""
        say_nothing()
        began = time.perf_counter()
        with answer.progress("compiling") as on_progress:
            compile_all(on_progress)
        about = {**cache(), "seconds": time.perf_counter() - began}
        answer.give(about, [f"Compiled: {about_kernels(about)} ({about['seconds']:.1f} s)."])
    if not about["kept"]:
        raise typer.Exit(1)
