"""The summary of a workflow's step, written in every state of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.seen import Seen
from kernelopt_bot.publish.shown import SUMMARY_LIMIT, summary
from kernelopt_bot.report.write import append_summary


def append(seen: Seen, path: Path) -> bool:
    """Appends to the file that `GITHUB_STEP_SUMMARY` names; False if no room is left in it. Raises InputError."""
    return append_text(lambda room: summary(seen, min(room, SUMMARY_LIMIT)), path)


def append_text(text: Callable[[int], str], path: Path) -> bool:
    """As `append` with `text(room in bytes)`."""
    try:
        return append_summary(path, text)
    except OSError as e:
        raise InputError(
            f"The step's summary can't be written: {e.strerror or e}.",
            where=str(path),
            fix="let GITHUB_STEP_SUMMARY name a file that may be written",
        ) from None
