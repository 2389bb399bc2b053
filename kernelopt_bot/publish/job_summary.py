"""The summary of a workflow's step, written in every state of a run."""

from __future__ import annotations

from pathlib import Path

from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.seen import Seen
from kernelopt_bot.publish.shown import SUMMARY_LIMIT, summary
from kernelopt_bot.report.write import SUMMARY_LIMIT as STEP_LIMIT

_LEAST = 4000


def append(seen: Seen, path: Path) -> bool:
    """Appends to the file that `GITHUB_STEP_SUMMARY` names; False if no room is left in it.

    GitHub drops a file of more than 1 MiB whole, so what stands there already counts. Raises InputError.
    """
    try:
        room = STEP_LIMIT - (path.stat().st_size if path.exists() else 0) - 1
        if room < _LEAST:
            return False
        with path.open("ab") as out:
            out.write(b"\n" + summary(seen, min(room, SUMMARY_LIMIT)).encode())
    except OSError as e:
        raise InputError(
            f"The step's summary can't be written: {e.strerror or e}.",
            where=str(path),
            fix="let GITHUB_STEP_SUMMARY name a file that may be written",
        ) from None
    return True
