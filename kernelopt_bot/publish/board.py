"""What the dashboard shows, from the manifests of a commit and what a sweep came to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from kernelopt_bot.config import Config
from kernelopt_bot.events.job import Job
from kernelopt_bot.publish.dashboard import Board, Held, Sweep, Unoptimised, held
from kernelopt_bot.publish.rest import Rest
from kernelopt_bot.publish.seen import Seen
from kernelopt_bot.publish.trees import blob, tree_at
from kernelopt_bot.search.sweep import LARGEST_MANIFEST, Swept

_MOST = 100
"""Manifests that are read; the dashboard shows no more rows."""
_STATES: Mapping[str, Literal["held", "stale", "regressed", "not verified"]] = {
    "verified": "held", "stale": "stale", "regressed": "regressed", "failed": "regressed"}


def board(rest: Rest, job: Job, config: Config, swept: Swept, seen: Seen, paths: Mapping[str, str]) -> Board:
    """`paths`: target -> its file, where known. All figures are those of the manifests, which nobody vouches for.
    Raises UserError."""
    root = config.artifact.root
    states = {p.artifact: (p.state, p.reason) for p in swept.proposals} | {
        v.artifact: (v.state, v.reason) for v in swept.verified}
    actions = {p.artifact: p.action for p in swept.proposals}
    rows: list[Held] = []
    for name, entry in sorted(tree_at(rest, job.head_sha, root).items()):
        target, _, file = name.partition("/")
        if file != "manifest.json" or entry["mode"] != "100644" or len(rows) >= _MOST:
            continue
        state, reason = states.get(f"{root}/{target}", ("held", ""))
        row = held(_manifest(blob(rest, str(entry["sha"]), LARGEST_MANIFEST)),
                   "held" if state == "held" else _STATES.get(state, "not verified"), "" if state == "held" else reason)
        # The folder's name, whatever the manifest says: it is what a command may name.
        rows.append(_with_pull(replace(row, target=target), seen, actions.get(f"{root}/{target}", "")))
    own = {row.target for row in rows}
    left = [*((s.target, f"searched: {s.reason}") for s in swept.plan.searches), *swept.plan.left]
    outcome = f"{len(swept.verified)} artifacts verified, {len(swept.plan.searches)} targets searched: {seen.title}"
    return Board(tuple(rows), tuple(Unoptimised(t, paths.get(t, ""), why) for t, why in left if t not in own),
                 Sweep(datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), outcome, seen.run_url))


def _with_pull(row: Held, seen: Seen, action: str) -> Held:
    if action not in ("mend", "remove") or seen.pull_number is None:
        return row
    return replace(row, pull_number=seen.pull_number, pull_url=seen.pull_url)


def _manifest(text: bytes) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
