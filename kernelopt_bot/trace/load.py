"""Reads a run folder without touching it: the run may still be going on."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelopt_bot.agents import records
from kernelopt_bot.agents.brain import Exchange
from kernelopt_bot.agents.spend import LEDGER, recorded
from kernelopt_bot.errors import InputError
from kernelopt_bot.report.restore import LONGEST, restore
from kernelopt_bot.search.archive import trial_from_json
from kernelopt_bot.search.result import TargetResult, Trial
from kernelopt_bot.trace.facts import TargetTrace, Trace, spots

TRIALS = "trials.jsonl"


def load(path: Path) -> Trace:
    """Of a run's folder, of one target's folder in it, or of an output folder: then of its newest run.

    Raises InputError where there is no record of a run.
    """
    folder = _run(path)
    found = [folder] if (folder / TRIALS).is_file() else sorted(p.parent for p in folder.glob(f"*/{TRIALS}"))
    if not found:
        raise InputError("there is no record of a run here", where=str(path),
                         fix=f"give the output folder of a run, or the folder that holds {TRIALS}")
    results = _results(folder)
    alone = next(iter(results.values())) if len(results) == len(found) == 1 else None
    targets = tuple(_target(p, results.get(p.name, alone)) for p in found)
    ledger = next((p for p in (folder / LEDGER, folder.parent / LEDGER) if p.is_file()), None)
    return Trace(folder.name, targets, recorded(ledger) if ledger is not None else None)


def _run(path: Path) -> Path:
    runs = sorted(p for p in (path / "runs").glob("*") if p.is_dir())
    return runs[-1] if runs and not (path / TRIALS).is_file() else path


def _results(folder: Path) -> Mapping[str, TargetResult]:
    """By target. The report of an output folder is its newest run's: `_target` checks that it speaks of this one."""
    for place in (folder, folder.parent, folder.parent.parent, folder.parent.parent.parent):
        file = place / "report.json"
        if file.is_file():
            with contextlib.suppress(InputError, OSError):
                if file.stat().st_size <= LONGEST:
                    return {r.target.name: r for r in restore(file.read_bytes()).results}
    return {}


def _target(folder: Path, result: TargetResult | None) -> TargetTrace:
    left_out = 0
    trials: dict[str, Trial] = {}
    for data in _lines(folder / TRIALS):
        try:
            trial = trial_from_json(data["trial"])
            trials[trial.candidate.id] = trial
        except (KeyError, TypeError, ValueError, AttributeError):
            left_out += 1
    exchanges: dict[tuple[str, str], Exchange] = {}
    for data in _lines(folder / records.NAME):
        try:
            exchange = Exchange.from_json(data)
            exchanges[exchange.brain, exchange.key] = exchange
        except (KeyError, TypeError, ValueError, AttributeError):
            left_out += 1
    if result is not None and {t.candidate.id for t in result.trials} != set(trials):
        result = None
    workers: dict[str, float] = defaultdict(float)
    for call in _lines(folder / "calls.jsonl"):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            workers[str(call["method"])] += float(call["seconds"])
    names = {(s.graph, s.step): s.name for s in result.profile.steps} if result and result.profile else {}
    if result is not None and result.environment.get("lane") == "cpu":
        # Candidates are then for the kernels of a pretended GPU, whose steps are others.
        names = {}
    return TargetTrace(folder.name, spots(tuple(trials.values()), exchanges.values(), result, names),
                       tuple(exchanges.values()), result, dict(workers), left_out)


def _lines(path: Path) -> Iterator[Any]:
    """JSON values of the file's whole lines. The last one may be half written yet."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)
