"""What a run came to, read from `report.json`: the little that comments, checks and summaries say."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kernelopt_bot.errors import InputError
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.section import call_site
from kernelopt_bot.search.result import Comparison, Noise

MOST_LINES = 10_000_000
"""Of a file that a report may name."""
Outcome = Literal["faster", "unchanged", "error"]


@dataclass(frozen=True)
class TargetSummary:
    name: str
    path: str
    entry: str
    line: int
    """Of the class in that file, from 1."""
    outcome: Outcome
    gain: Comparison | None
    """The confirmed figure of a faster target; None for all others, whatever the file says."""
    candidates: int
    """Tried; those that came far enough are counted in the three fields below."""
    adopted: int
    stopped: Mapping[str, int]
    """Gate -> how many it stopped."""
    passed_over: int
    """No gate stopped them: a better one was adopted, or they gained too little to be judged."""
    reason: str
    """The error, or the levers' own words why nothing was adopted."""
    levers: tuple[tuple[str, str], ...]
    """(lever, why it adopted nothing or not more)."""
    baselines: tuple[Comparison, ...]
    noise: Noise | None
    """The A/A control: the same code against itself."""
    artifact: str
    call_site: str
    """Made from the folder's name: readers paste it."""
    environment: str
    """`NVIDIA H200, torch 2.11.0, triton 3.6.0`; '' where unknown."""
    kernel: bool = False
    """A Triton kernel of the user's, whose file is edited in place; else a model, which gets an artifact."""


@dataclass(frozen=True)
class RunSummary:
    targets: tuple[TargetSummary, ...]
    skipped: tuple[tuple[str, str], ...]
    """(path or class, reason)."""
    head_sha: str
    stopped: str
    wall_s: float
    device_s: float

    @property
    def command(self) -> str:
        """What repeats the run. Made from its targets, since readers paste it: nobody vouches for the file's own."""
        return shlex.join(["kernelopt", "optimize", *dict.fromkeys(f"{t.path}:{t.entry}" for t in self.targets)])

    @property
    def faster(self) -> tuple[TargetSummary, ...]:
        return self.of("faster")

    def of(self, outcome: Outcome) -> tuple[TargetSummary, ...]:
        return tuple(t for t in self.targets if t.outcome == outcome)


def summarise(data: Mapping[str, Any]) -> RunSummary:
    """`data` is a decoded `report.json` that nobody vouches for.

    Raises InputError where it has not the shape of `docs/report.schema.json` or holds a gain that is none.
    """
    try:
        lists = {name: by_target(data[name], lambda part: _text(part["target"]))
                 for name in ("levers", "rejected", "baselines", "noise")}
        return RunSummary(
            tuple(_target(data, t, lists) for t in data["targets"]),
            tuple((_text(s["what"]), _text(s["reason"])) for s in data["skipped"]),
            _text(data["head_sha"]),
            _text(data["stopped"]),
            _number(data["spent"].get("wall_s", 0.0)),
            _number(data["spent"].get("device_s", 0.0)),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as e:
        raise InputError(
            f"The run's data can't be read: {type(e).__name__} {e}",
            where="report.json",
            fix="run again with one release of KernelOPT in all phases",
        ) from None


def by_target(parts: Iterable[Any], target_of: Callable[[Any], str]) -> dict[str, list[Any]]:
    """The parts of a report's list by their target. Once for all targets: a report with many of both would else cost
    their product."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        found.setdefault(target_of(part), []).append(part)
    return found


def _target(data: Mapping[str, Any], t: Mapping[str, Any],
            lists: Mapping[str, Mapping[str, list[Mapping[str, Any]]]]) -> TargetSummary:
    name = _text(t["name"])
    gain = comparison(t["headline"]) if t["faster"] is True else None
    if t["faster"] is True and (gain is None or not gain.low > 1.0):
        raise ValueError(f"of {name}: faster, without an interval above 1")
    error = _text(t["error"])
    levers, counts, baselines, noise = (
        lists[key].get(name, []) for key in ("levers", "rejected", "baselines", "noise"))
    why = tuple((_text(x["lever"]), _text(x["reason"])) for x in levers if x["reason"])
    return TargetSummary(
        name,
        _text(t["path"]),
        _text(t["entry"]),
        _line(t.get("line", 1)),
        "faster" if gain is not None else "error" if error else "unchanged",
        gain,
        int(_number(t["candidates"])),
        sum(int(_number(x["adopted"])) for x in counts),
        _stopped(counts),
        sum(int(_number(x["passed_over"])) for x in counts),
        error or "; ".join(f"{lever}: {reason}" for lever, reason in why),
        why,
        tuple(c for b in baselines if (c := _measured(b["gain"])) is not None),
        _noise(noise[0]) if noise else None,
        _text(t["artifact"]),
        call_site(_text(t["artifact"])),
        environment_words(data["environment"].get(name, {})),
        t.get("kind") == "triton",
    )


def _stopped(entries: list[Mapping[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for e in entries:
        for gate, count in e["stopped"].items():
            counts[_text(gate)] = counts.get(_text(gate), 0) + int(_number(count))
    return {gate: count for gate, count in counts.items() if count}


def environment_words(found: Mapping[str, Any]) -> str:
    """`NVIDIA H200, torch 2.11.0, triton 3.6.0` of a result's `environment`; '' where unknown."""
    gpu = found.get("gpu")
    device = gpu.get("name") if isinstance(gpu, Mapping) else found.get("cpu")
    versions = [f"{name} {found[name]}" for name in ("torch", "triton") if found.get(name)]
    return ", ".join([str(device)] * bool(device) + versions)


def comparison(c: Mapping[str, Any] | None) -> Comparison | None:
    """Raises ValueError for figures that no measurement gives, KeyError for missing ones."""
    if c is None:
        return None
    made = Comparison(
        _text(c["baseline"]),
        _text(c["candidate"]),
        _text(c["metric"]),
        _text(c["cache"]),
        _number(c["speedup"]),
        _number(c["low"]),
        _number(c["high"]),
        _number(c["baseline_ms"]),
        _number(c["candidate_ms"]),
        int(_number(c["pairs"])),
    )
    figures = (made.speedup, made.low, made.high, made.baseline_ms, made.candidate_ms)
    if not all(math.isfinite(x) and x > 0 for x in figures) or not made.low <= made.speedup <= made.high:
        raise ValueError("a comparison without a positive, ordered interval")
    return made


def _measured(c: Mapping[str, Any] | None) -> Comparison | None:
    """A baseline's figure, or None where it is none: only the headline decides."""
    try:
        return comparison(c)
    except (OverflowError, TypeError, ValueError):
        return None


def _line(value: Any) -> int:
    found = int(_number(value))
    if not 1 <= found <= MOST_LINES:
        raise ValueError(f"{found} is no line")
    return found


def _noise(x: Mapping[str, Any]) -> Noise | None:
    """None where the figures are none."""
    try:
        made = Noise(_number(x["speedup"]), _number(x["low"]), _number(x["high"]), int(_number(x["pairs"])))
    except (OverflowError, TypeError, ValueError):
        return None
    figures = (made.speedup, made.low, made.high)
    return made if all(math.isfinite(f) and f > 0 for f in figures) else None


def gain_words(t: TargetSummary) -> str:
    """`1.436x (95% interval 1.431x to 1.440x) against max-autotune`; '' without a gain."""
    return f"{n.gain(t.gain)} against {t.gain.baseline}" if t.gain is not None else ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value)
