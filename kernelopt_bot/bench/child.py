"""One problem through the product: `kernelopt optimize` in a process of its own, and the record of what it reported."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from kernelopt_bot import process
from kernelopt_bot.bench.machine import PACKAGE
from kernelopt_bot.bench.problems import Problem
from kernelopt_bot.bench.record import Record, from_report, shortened
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.sandbox.turns import VARIABLE
from kernelopt_bot.sandbox.worker_environment import HOST_SETTINGS

VARIABLES = (*process.BASE_ENVIRONMENT, *HOST_SETTINGS, "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONPATH",
             "GITHUB_ACTIONS")
POLL_S = 0.5
GRACE_S = 20.0
"""For the product to end its workers after SIGTERM."""
ENTRY = "Model"
"""KernelBench's class."""


@dataclass(frozen=True)
class Settings:
    """What every problem is given."""

    levers: tuple[str, ...]
    search_s: Mapping[int, float]
    """Level -> seconds for the levers."""
    sandbox: str
    timeout_s: float
    """For all of one problem: loading, search, confirmation."""
    together: int = 1
    """Problems at a time on one GPU, of which one at a time is timed (`sandbox/turns.py`)."""

    def configuration(self, level: int) -> dict[str, Any]:
        """The problem's .kernelopt.yml."""
        return {"version": 1, "benchmark": True, "levers": list(self.levers), "sandbox": self.sandbox,
                "budget": {"wall_s": 86_400.0, "search_s": self.search_s[level], "gpu_minutes": 1440.0}}

    def kept(self, level: int) -> dict[str, Any]:
        """As a record has it."""
        return {"levers": list(self.levers), "search_s": self.search_s[level], "timeout_s": self.timeout_s,
                "sandbox": self.sandbox, "together": self.together}


class Stopped(Exception):
    """The benchmark ends before this problem did; nothing is known of it."""


def run(problem: Problem, folder: Path, settings: Settings, device: str, environment: Mapping[str, str], *,
        ends: float, stop: threading.Event, prefix: Sequence[str] = (), turns: Path | None = None) -> Record:
    """The record of a problem that is tried in `folder`, which is made anew.

    `ends`: `time.monotonic()` at which to give up, `stop`: set to give up at once. `turns`: folder of the locks of a
    GPU that others use too. Raises Stopped, and Unavailable where the machine, not the problem, is in the way.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(problem.path, folder / "problem.py")
    (folder / ".kernelopt.yml").write_text(yaml.safe_dump(settings.configuration(problem.level)))
    begun = Record(problem.level, problem.number, "error", dict(environment), settings.kept(problem.level),
                   datetime.now(UTC).isoformat(timespec="seconds"))
    command = [*prefix, sys.executable, "-m", "kernelopt_bot", "optimize", f"problem.py:{ENTRY}", "--device", device,
               "--output", "out"]
    start = time.monotonic()
    code, said = _wait(command, folder, min(ends, start + settings.timeout_s), stop, turns)
    spent = time.monotonic() - start
    (folder / "log.txt").write_text(said)
    report = _report(folder / "out" / "report.json")
    if code is None:
        if stop.is_set() or ends < start + settings.timeout_s:
            raise Stopped(problem.id)
        return replace(begun, status="timeout", total_s=spent, error=f"not done after {settings.timeout_s:g} s")
    if report and report["targets"]:
        return from_report(report, begun, spent)
    if code == 3:
        return replace(begun, total_s=spent, error=f"a bug in KernelOPT: {shortened(said)[-400:]}")
    if code == 2:
        return replace(begun, status="unsupported", total_s=spent, error=shortened(said.partition("error: ")[2]))
    why = (report or {}).get("stopped") or shortened(said.partition("error: ")[2]) or f"it ended with code {code}"
    raise Unavailable(f"{problem.id} could not be tried: {why}", fix="mend that, then run the same command again")


def _wait(command: Sequence[str], folder: Path, until: float, stop: threading.Event, turns: Path | None,
          ) -> tuple[int | None, str]:
    """Exit code (None if it was ended) and what it said."""
    known = process.environment(VARIABLES)
    path = ":".join(filter(None, (str(PACKAGE), known.get("PYTHONPATH"))))
    known |= {"PYTHONPATH": path, "CI": "true"} | ({VARIABLE: str(turns)} if turns is not None else {})
    child = process.start(command, environment=known, cwd=folder, stdin=False)
    assert child.stdout and child.stderr
    out, err = process.Tail(child.stdout), process.Tail(child.stderr)
    code: int | None = None
    try:
        while code is None and not stop.is_set() and time.monotonic() < until:
            code = process.wait(child, POLL_S)
        if code is not None:
            for tail in (out, err):
                tail.join(1.0)
    finally:
        process.stop(child, grace=GRACE_S)
    for tail in (out, err):
        tail.join(1.0)
    return code, process.redact(err.text() + out.text())


def _report(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    assert isinstance(found, dict)
    return found
