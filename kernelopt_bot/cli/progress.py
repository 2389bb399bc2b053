"""Progress on the terminal: a bar where a person looks, plain lines in the log of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from kernelopt_bot.process import redact
from kernelopt_bot.search.progress import Progress

QUIET_S = 20.0
"""Seconds between two plain lines for one and the same step."""


class Lines:
    """A line a step, with the time since the start: for logs, where a bar would be noise."""

    def __init__(self, console: Console) -> None:
        self._console, self._start = console, time.monotonic()
        self._last, self._at = "", 0.0

    def update(self, text: str, done: int = 0, of: int = 0) -> None:
        step, now = text.split(":")[0], time.monotonic()
        if step == self._last and now - self._at < QUIET_S:
            return
        self._last, self._at = step, now
        self._print(text + (f" ({done}/{of})" if of else ""))

    def note(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        elapsed = int(time.monotonic() - self._start)
        self._console.print(redact(f"[{elapsed // 60:02d}:{elapsed % 60:02d}] {text}"), markup=False, highlight=False)


class Live:
    """One bar that is rewritten, notes above it."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def update(self, text: str, done: int = 0, of: int = 0) -> None:
        self._bar.update(self._task, description=redact(text)[:100], completed=done, total=of or None)

    def note(self, text: str) -> None:
        self._bar.console.print(redact(text), markup=False, highlight=False)


@contextmanager
def shown() -> Iterator[Progress]:
    """Progress on standard error, so that `--json` keeps standard output for itself."""
    console = Console(stderr=True)
    if not console.is_terminal or os.environ.get("CI"):
        yield Lines(console)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        yield Live(bar)
