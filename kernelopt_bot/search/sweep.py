"""What a nightly sweep does, decided from facts: which artifacts to verify, where a search pays most, what to propose.

Its state is what the repository shows: manifests of committed artifacts and our open pull requests. Figures of a
manifest are nobody's promise; here they only decide the order of work.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelopt_bot.config import Sweep

DAY_S = 86_400.0
HALF_LIFE_DAYS = 30.0
"""After so many days half of what a new compiler or technique may have changed counts as changed."""
LARGEST_MANIFEST = 4 << 20
MENDS = frozenset({"stale", "regressed", "failed"})
"""States of an artifact that no longer does what it was merged for."""


@dataclass(frozen=True)
class Held:
    """A committed artifact."""

    artifact: str
    """Its folder, POSIX, relative to the root."""
    target: str
    speedup: float = 1.0
    """Model-level, as its manifest says; 1.0 where it says nothing."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    since: float | None = None
    """Unix time in seconds of the last commit that changed it; None if unknown."""


@dataclass(frozen=True)
class Verified:
    """A committed artifact on the present stack. `state` as `search.verify.State`."""

    artifact: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Opened:
    """Our open pull requests as they count for a sweep."""

    pulls: int = 0
    targets: tuple[str, ...] = ()
    """What they offer: these are not searched again."""
    waiting: str = ""
    """Why nothing at all is searched, in words; '' if nothing forbids it."""


NONE_OPEN = Opened()


@dataclass(frozen=True)
class Room:
    """Where a target's time went when it was last profiled."""

    share: float
    """Of the call's time, in steps that a kernel may replace: 0 to 1."""
    headroom: float
    """Time of these steps / their floor, at least 1."""


UNKNOWN = Room(0.5, 1.2)
"""Of a target that was never profiled: 9%. It decides an order, and nothing that is published."""


@dataclass(frozen=True)
class Search:
    target: str
    expected: float
    """Expected gain: 0.1 is 10%."""
    reason: str


@dataclass(frozen=True)
class Plan:
    """`left`: (target or artifact, why not)."""

    searches: tuple[Search, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Proposal:
    """What becomes of an artifact. `mend` and `remove` are proposed in a pull request, `keep` and `report` are said."""

    artifact: str
    state: str
    action: Literal["keep", "mend", "remove", "report"]
    reason: str


@dataclass(frozen=True)
class Swept:
    """What a sweep came to."""

    verified: tuple[Verified, ...] = ()
    plan: Plan = Plan()
    proposals: tuple[Proposal, ...] = ()


def amdahl(room: Room) -> float:
    """Gain of the whole if the share reaches its floor: 1 / ((1 - p) + p / s) - 1.

    G. M. Amdahl, Validity of the single processor approach to achieving large scale computing capabilities, 1967."""
    return 1.0 / ((1.0 - room.share) + room.share / room.headroom) - 1.0


def due(held: Held, stack: Mapping[str, Any], now: float, settings: Sweep) -> str:
    """Why the artifact is to be verified; '' if it is not. `stack`: torch, triton, device of today, and a
    GPU's driver, which counts where the artifact says with which it was verified."""
    for name, value in stack.items():
        if held.environment.get(name, value if name == "driver" else None) != value:
            return f"verified with {name} {held.environment.get(name)}, here is {value}"
    if held.since is None:
        return "nobody knows when it was verified"
    days = (now - held.since) / DAY_S
    return f"verified {days:.0f} days ago" if days >= settings.reverify_days else ""


def plan(targets: Sequence[str], held: Sequence[Held], states: Mapping[str, str], rooms: Mapping[str, Room], *,
         now: float, settings: Sweep, opened: Opened = NONE_OPEN) -> Plan:
    """The searches that pay most, best first.

    `states`: artifact -> state, of those verified today. `rooms` by target, where known.
    """
    why = opened.waiting
    if not why and opened.pulls >= settings.open_pull_requests:
        why = f"{opened.pulls} of our pull requests are open, and the limit is {settings.open_pull_requests}"
    if why:
        return Plan((), tuple((t, why) for t in targets))
    own, waiting = {h.target: h for h in held}, frozenset(opened.targets)
    left = [(t, "a pull request for it is open") for t in targets if t in waiting]
    wanted = [_search(t, own.get(t), states, rooms.get(t, UNKNOWN), now) for t in targets if t not in waiting]
    left += [(s.target, s.reason) for s in wanted if s.expected <= 0.0]
    ranked = sorted((s for s in wanted if s.expected > 0.0), key=lambda s: (-s.expected, s.target))
    most = min(settings.targets, len(ranked))
    left += [(s.target, f"others are expected to gain more, and the limit is {settings.targets} a sweep")
             for s in ranked[most:]]
    return Plan(tuple(ranked[:most]), tuple(left))


def _search(target: str, held: Held | None, states: Mapping[str, str], room: Room, now: float) -> Search:
    possible = amdahl(room)
    if held is None:
        why = "it has no artifact yet" if possible > 0.0 else "its kernels are at their floor"
        return Search(target, possible, why)
    state = states.get(held.artifact, "")
    if state in MENDS:
        # What it once gained is gone, and may be had again on top of what was never gained.
        return Search(target, max(possible, held.speedup - 1.0), f"its artifact is {state}")
    if state == "modified":
        return Search(target, 0.0, "its artifact was edited: that is a person's to decide")
    days = max(0.0, now - held.since) / DAY_S if held.since is not None else math.inf
    staleness = 1.0 - 2.0 ** (-days / HALF_LIFE_DAYS)
    remaining = Room(room.share, max(1.0, room.headroom / max(1.0, held.speedup)))
    return Search(target, amdahl(remaining) * staleness,
                  f"searched {days:.0f} days ago" if math.isfinite(days) else "nobody knows when it was searched")


def settle(held: Sequence[Held], states: Mapping[str, tuple[str, str]], searched: Mapping[str, bool],
           ) -> tuple[Proposal, ...]:
    """What to propose for each artifact. `states`: artifact -> (state, reason); `searched`: target -> found a gain, of
    the searches that came to their end."""
    made = []
    for h in held:
        state, reason = states.get(h.artifact, ("held", "not due"))
        action: Literal["keep", "mend", "remove", "report"]
        if state not in MENDS:
            action = "report" if state == "modified" else "keep"
        elif h.target not in searched:
            action, reason = "report", f"{reason}; not searched again in this sweep"
        else:
            action = "mend" if searched[h.target] else "remove"
        made.append(Proposal(h.artifact, state, action, reason))
    return tuple(made)


def held_in(root: Path, artifact_root: str) -> tuple[Held, ...]:
    """The artifacts below `root/artifact_root`, sorted by folder, from manifests that nobody vouches for. One that
    cannot be read is held with no figures: verifying it says what is wrong."""
    found = []
    for path in sorted((root / artifact_root).glob("*/manifest.json")):
        folder = path.parent
        if folder.is_symlink() or path.is_symlink() or not path.is_file():
            continue
        data = _manifest(path)
        speedup = _part(data, "evidence").get("speedup")
        plausible = isinstance(speedup, int | float) and 0.1 < speedup < 1000
        found.append(Held(f"{artifact_root}/{folder.name}", folder.name, float(speedup or 1.0) if plausible else 1.0,
                          _part(data, "environment")))
    return tuple(found)


def _manifest(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(LARGEST_MANIFEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name)
    return part if isinstance(part, dict) else {}


def rooms_in(report: Mapping[str, Any]) -> dict[str, Room]:
    """Target -> room, from the profiles of an earlier run's report.json; what is not there is left out."""
    found = {}
    for target in report.get("targets") or ():
        profile = target.get("profile") or {}
        steps = [s for s in profile.get("steps") or () if s["kind"] == "kernel" and s["time_us"] is not None]
        time_us = sum(s["time_us"] * s["calls"] for s in steps)
        floor_us = sum(s["time_us"] / max(1.0, s["headroom"]) * s["calls"] for s in steps)
        call_us = profile.get("call_us") or profile.get("device_us")
        if time_us > 0.0 and floor_us > 0.0 and call_us:
            found[str(target["name"])] = Room(min(1.0, time_us / call_us), max(1.0, time_us / floor_us))
    return found
