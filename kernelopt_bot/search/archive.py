"""The run folder: every trial as one JSON line, on disk before anything else happens, so that a crash loses nothing.

`<folder>/trials.jsonl` is append-only. A line counts once its newline is there and its digest fits; a torn last line
(power cut, full disk) is cut off at the next start. Candidates are kept whole, so that a resumed search neither
repeats a trial nor has to make a verified candidate again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelopt_bot.contract.candidate import Candidate, KernelCandidate, OptionsCandidate, Plan
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.search.result import Trial

SCHEMA = 1


class Archive:
    """Append-only store of the trials of one target. Raises Unavailable where the folder cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "trials.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._size = _sound_length(self.path)
            if self.path.exists() and self.path.stat().st_size != self._size:
                os.truncate(self.path, self._size)
        except OSError as e:
            raise _unavailable(e, self.path) from e

    def append(self, trial: Trial) -> None:
        """On disk when it returns. Raises Unavailable (disk full, no permission); the file then ends as before."""
        line = _line(trial_to_json(trial))
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise _unavailable(e, self.path) from e
        try:
            os.lseek(descriptor, self._size, os.SEEK_SET)
            _write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError as e:
            with contextlib.suppress(OSError):  # a torn tail is cut off at the next start
                os.ftruncate(descriptor, self._size)
            raise _unavailable(e, self.path) from e
        finally:
            os.close(descriptor)
        self._size += len(line)

    def load(self) -> tuple[Trial, ...]:
        """The trials in order of their ids' first appearance; a later record of a candidate replaces an earlier one."""
        found: dict[str, Trial] = {}
        try:
            data = self.path.read_bytes()[: self._size] if self.path.exists() else b""
        except OSError as e:
            raise _unavailable(e, self.path) from e
        for line in data.splitlines():
            trial = trial_from_json(json.loads(line)["trial"])
            found[trial.candidate.id] = trial
        return tuple(found.values())

    def tried(self) -> frozenset[str]:
        """Ids of the candidates that have a record."""
        return frozenset(t.candidate.id for t in self.load())


def trial_to_json(trial: Trial) -> dict[str, Any]:
    return {
        "candidate": {"kind": type(trial.candidate).__name__, **_plain(trial.candidate)},
        "verdicts": [v.to_json() for v in trial.verdicts],
        **{k: getattr(trial, k) for k in ("adopted", "step_speedup", "before_us", "after_us", "note")},
    }


def trial_from_json(data: Mapping[str, Any]) -> Trial:
    """Raises KeyError, TypeError or ValueError on anything that `trial_to_json` did not make."""
    given = dict(data["candidate"])
    kind = given.pop("kind")
    candidate: Candidate
    if kind == "KernelCandidate":
        candidate = KernelCandidate(**{**given, "steps": tuple(given["steps"]), "plan": Plan.from_json(given["plan"])})
    elif kind == "OptionsCandidate":
        candidate = OptionsCandidate(**given)
    else:
        raise ValueError(f"unknown kind of candidate {kind!r}")
    verdicts = tuple(Verdict(**{**v, "status": Status(v["status"])}) for v in data["verdicts"])
    rest = {k: data[k] for k in ("adopted", "step_speedup", "before_us", "after_us", "note")}
    return Trial(candidate, verdicts, **rest)


def _plain(candidate: Candidate) -> dict[str, Any]:
    if isinstance(candidate, OptionsCandidate):
        return {**asdict(candidate), "options": dict(candidate.options)}
    return asdict(candidate)


def _line(trial: dict[str, Any]) -> bytes:
    """`{"schema", "digest", "trial"}` and a newline; JSON of one line (it escapes newlines in sources)."""
    digest = _digest(trial)
    return json.dumps({"schema": SCHEMA, "digest": digest, "trial": trial}, sort_keys=True).encode() + b"\n"


def _digest(trial: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest()[:16]


def _sound_length(path: Path) -> int:
    """Bytes of the leading lines that are whole and intact."""
    if not path.exists():
        return 0
    length = 0
    with path.open("rb") as stream:
        for line in stream:
            try:
                record = json.loads(line)
                sound = record["schema"] == SCHEMA and record["digest"] == _digest(record["trial"])
            except (ValueError, KeyError, TypeError):
                sound = False
            if not sound or not line.endswith(b"\n"):
                break
            length += len(line)
    return length


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]


def _unavailable(error: OSError, path: Path) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable("The disk is full; what was verified before is kept.", where=str(path.name),
                           fix="free some space, then run the same command again: it resumes", kind="disk_full")
    return Unavailable(f"The run folder cannot be written: {error.strerror or type(error).__name__}.",
                       where=str(path.name), fix="choose a folder that can be written", kind="unwritable")
