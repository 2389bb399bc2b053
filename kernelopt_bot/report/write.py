"""The report as files: `report.md`, `report.json`, the charts, and the summary of a workflow's step."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.report.blocks import Report
from kernelopt_bot.report.machine import render_json
from kernelopt_bot.report.markdown import beside, render

SUMMARY_LIMIT = 1024 * 1024
"""Bytes that GitHub shows of one step's summary; a longer one is dropped whole."""
LEAST_SUMMARY = 4000
"""With less room left nothing is written."""
_FILE_LIMIT = 20_000_000


def write(report: Report, folder: Path) -> tuple[Path, ...]:
    """Each file appears whole or not at all; `report.json` comes last. Raises InputError or Unavailable."""
    contents = {
        **report.files,
        "report.md": render(report, limit=_FILE_LIMIT, picture=beside).encode(),
        "report.json": render_json(report.data).encode(),
    }
    return tuple(write_whole(folder / name, content) for name, content in contents.items())


def write_summary(report: Report, path: Path) -> bool:
    """Appends to the file that `GITHUB_STEP_SUMMARY` names.

    False if no room is left in it. Raises InputError or Unavailable.
    """
    try:
        return append_summary(path, lambda room: render(report, limit=room // 4))  # Up to four bytes a character.
    except OSError as e:
        raise _explained(e, path) from None


def append_summary(path: Path, text: Callable[[int], str]) -> bool:
    """Appends `text(room in bytes)` to a step's summary; False if no room is left in it. GitHub drops a larger file
    whole, so what stands there already counts. Raises OSError."""
    room = SUMMARY_LIMIT - (path.stat().st_size if path.exists() else 0) - 1
    if room < LEAST_SUMMARY:
        return False
    with path.open("ab") as out:
        out.write(b"\n" + text(room).encode())
    return True


def write_whole(path: Path, content: bytes) -> Path:
    """Writes by way of a temporary file in the same folder. Raises InputError or Unavailable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as e:
        raise _explained(e, path) from None
    return path


def _explained(e: OSError, path: Path) -> InputError | Unavailable:
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable("The disk is full.", where=str(path), fix="free some space, or choose another output folder")
    return InputError(
        f"The output can't be written: {e.strerror or e}.", where=str(path), fix="choose a folder that you may write to"
    )
