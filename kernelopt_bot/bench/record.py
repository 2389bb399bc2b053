"""What is kept of one problem: a record, made from the product's own report.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Status = Literal["measured", "unsupported", "out_of_memory", "error", "timeout"]
STATUSES: tuple[Status, ...] = ("measured", "unsupported", "out_of_memory", "error", "timeout")
SETS = ("kernel+dispatch", "+launch", "+region")
"""Sets of levers, each with all of the one before; gains are against default torch.compile."""
BEST = "best_baseline"
"""The gain of `+region` against the fastest of eager, default, reduce-overhead and max-autotune."""

_STATUS: Mapping[str, Status] = {
    "out_of_memory": "out_of_memory", "timeout": "timeout", "unsupported": "unsupported", "no_graphs": "unsupported",
    "non_deterministic": "unsupported", "compile_failed": "unsupported", "target_import": "unsupported",
    "target_missing": "unsupported", "target_constructor": "unsupported", "target_inputs": "unsupported",
    "target_forward": "unsupported", "target_device": "unsupported"}
"""Kinds of error (search/explain.py) -> status; every other kind is an `error`."""
ERROR_CHARACTERS = 600


@dataclass(frozen=True)
class Gain:
    """Baseline time / candidate time with its 95% interval."""

    speedup: float
    low: float
    high: float


@dataclass(frozen=True)
class LeverResult:
    adopted: int
    gain: Gain | None
    """On top of the levers before it."""
    reason: str
    """Why it adopted nothing."""


@dataclass(frozen=True)
class Record:
    """One problem on one machine. Times in microseconds (`_us`) or seconds (`_s`), one metric and cache state."""

    level: int
    number: int
    status: Status
    environment: Mapping[str, str]
    """`gpu` (or the CPU), `torch`, `triton`, `release`; and `driver`, `commit`, which may differ between records."""
    settings: Mapping[str, Any]
    """`levers`, `search_s`: what the problem was given."""
    date: str
    """UTC, ISO 8601."""
    metric: str = ""
    cache: str = ""
    times_us: Mapping[str, float] = field(default_factory=dict)
    """Arm -> median: `eager`, `default`, `reduce-overhead`, `max-autotune` where something was adopted, `candidate`."""
    gains: Mapping[str, Gain] = field(default_factory=dict)
    """Of `SETS` and `BEST`, those that were measured. One that is absent changed nothing and counts as 1.0."""
    against: Mapping[str, Gain] = field(default_factory=dict)
    """Baseline -> gain of the whole."""
    levers: Mapping[str, LeverResult] = field(default_factory=dict)
    pieces: tuple[Mapping[str, Any], ...] = ()
    """What was adopted: lever, technique, speedup of the step."""
    gates: Mapping[str, str] = field(default_factory=dict)
    """Gate -> status of the confirmed whole."""
    noise: Gain | None = None
    candidates: int = 0
    search_s: float | None = None
    total_s: float | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    note: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return (self.level, self.number)

    def gain(self, name: str) -> float:
        """The factor that the problem counts with."""
        return self.gains[name].speedup if name in self.gains else 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(data: Mapping[str, Any]) -> Record:
    """Raises ValueError if a field is missing or unknown, or a status is."""
    if set(data) != {f.name for f in fields(Record)} or data["status"] not in STATUSES:
        raise ValueError("not a record of this release")
    given = dict(data)
    try:
        for name in ("gains", "against"):
            given[name] = {k: Gain(**v) for k, v in data[name].items()}
        given["noise"] = Gain(**data["noise"]) if data["noise"] else None
        given["levers"] = {k: LeverResult(v["adopted"], Gain(**v["gain"]) if v["gain"] else None, v["reason"])
                           for k, v in data["levers"].items()}
        given["pieces"] = tuple(data["pieces"])
    except (TypeError, KeyError, AttributeError) as e:
        raise ValueError(f"not a record of this release: {e}") from None
    return Record(**given)


def status_of(error: str, kind: str) -> Status:
    return "measured" if not error else _STATUS.get(kind, "error")


def from_report(report: Mapping[str, Any], begun: Record, total_s: float) -> Record:
    """The record of a report with one target. `begun` has what the report does not know."""
    target = report["targets"][0]
    program = target["program"]
    metric, cache = "latency", "cold" if program and program["lane"] == "cuda" else "warm"
    compared = {b["baseline"]: b["gain"] for b in report["baselines"]
                if b["gain"] and (b["gain"]["metric"], b["gain"]["cache"]) == (metric, cache)}
    levers = {entry["lever"]: LeverResult(entry["adopted"], _gain(entry["gain"]), entry["reason"])
              for entry in report["levers"]}
    sets = {"+".join(entry["levers"]): entry["gain"] for entry in report["sets"]}
    gains, note = _gains(compared, levers, sets, target)
    times = {baseline: c["baseline_ms"] * 1e3 for baseline, c in compared.items()}
    if any(r.adopted for r in levers.values()) and "default" in compared:
        times["candidate"] = compared["default"]["candidate_ms"] * 1e3
    noise = next(iter(report["noise"]), None)
    if not compared:
        metric = cache = ""
    return Record(
        begun.level, begun.number, status_of(target["error"], target["error_kind"]), begun.environment, begun.settings,
        begun.date, metric, cache, times, gains, {k: _known(v) for k, v in compared.items()}, levers,
        tuple({"lever": a["lever"], "technique": a["technique"], "step_speedup": a["step"]["speedup"]}
              for a in report["adopted"]),
        {v["gate"]: v["status"] for v in target["stitched"]}, _gain(noise), target["candidates"],
        target["spent"].get("search_s"), total_s, target["peak_memory"], shortened(target["error"]), note)


def _gains(compared: Mapping[str, Any], levers: Mapping[str, LeverResult], sets: Mapping[str, Any],
           target: Mapping[str, Any]) -> tuple[dict[str, Gain], str]:
    """Gains by set, and what limits them."""
    whole = compared.get("default")
    adopting = {name for name, r in levers.items() if r.adopted}
    if whole is None:
        return {}, ""
    best = min(compared.values(), key=lambda c: float(c["speedup"]))
    if not adopting:
        # Taken back, so that the user keeps the baseline; but what the search believed in counts as it turned out.
        if target["stitched"] and whole["speedup"] < 1.0:
            loss = _known(whole)
            return {**dict.fromkeys(SETS, loss), BEST: _known(best)}, "a loss at the confirmation, taken back"
        return {}, ""
    gains, note = {"+region": _known(whole), BEST: _known(best)}, ""
    chain: tuple[tuple[str, str, set[str]], ...] = (
        ("+launch", "kernel+dispatch+launch", {"region"}), ("kernel+dispatch", "kernel+dispatch", {"region", "launch"}))
    for name, levers_of_it, without in chain:
        if not adopting & without:
            gains[name] = gains["+region"]
        elif levers_of_it in sets:
            gains[name] = _known(sets[levers_of_it])
        elif adopting - without:
            known = levers.get("dispatch")
            # On top of launch its gain says nothing of it alone.
            first = next((lever for lever in levers if lever in ("dispatch", "launch")), "") == "dispatch"
            if first and known is not None and known.gain is not None:
                gains[name] = known.gain
            note = f"{name} could not be built alone: it counts as what dispatch gave before launch, else as 1.0"
    return gains, note


def shortened(error: str) -> str:
    """The first line and what to do, without the user's traceback."""
    lines = [line for line in error.splitlines() if line and not line.startswith("    ")]
    return " ".join(" ".join(lines).split())[:ERROR_CHARACTERS]


def _gain(data: Mapping[str, Any] | None) -> Gain | None:
    return _known(data) if data else None


def _known(data: Mapping[str, Any]) -> Gain:
    return Gain(float(data["speedup"]), float(data["low"]), float(data["high"]))
