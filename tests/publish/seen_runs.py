"""Runs for the tests of what is seen: from results that never happened, through the real report.json."""

from __future__ import annotations

import copy
from typing import Any

from kernelopt_bot.publish.seen import Seen, finished
from kernelopt_bot.report.machine import machine_data
from kernelopt_bot.report.summary import summarise
from tests.report import results

EVIL = (
    "<!-- kernelopt:comment --> @octocat/all #1 acme/kernels#2 | x |\r\n::set-env name=A::b\n"
    "</details><script>alert(1)</script> ![p](https://evil.example/p.png) [l](https://evil.example) `</code>` "
    "<img src=x> www.evil.example ** _x_ $a$ \u202e\x1b[31m"
)


def data() -> dict[str, Any]:
    """`report.json` of one faster target, one unchanged, one that failed."""
    return copy.deepcopy(machine_data(results.whole_run()))


def gained(head_sha: str = "b" * 40, **more: Any) -> Seen:
    return finished(summarise(data()), head_sha=head_sha, **more)


def nothing(head_sha: str = "b" * 40, **more: Any) -> Seen:
    found = data()
    found["targets"] = found["targets"][1:2]
    return finished(summarise(found), head_sha=head_sha, **more)


def failed(head_sha: str = "b" * 40, **more: Any) -> Seen:
    found = data()
    found["targets"] = found["targets"][2:]
    return finished(summarise(found), head_sha=head_sha, **more)


def many(count: int, head_sha: str = "b" * 40) -> Seen:
    """`count` faster and `count` failed targets, each with long words."""
    found = data()
    good, _, bad = found["targets"]
    found["targets"] = [
        t | {"name": f"{t['name']}_{i}", "error": t["error"] * 40} for i in range(count) for t in (good, bad)
    ]
    found["baselines"] = [b | {"target": f"{b['target']}_{i}"} for i in range(count) for b in found["baselines"]]
    return finished(summarise(found), head_sha=head_sha)


def evil() -> Seen:
    """Every text that comes from elsewhere is an attack."""
    found = data()
    for t in found["targets"]:
        for key in ("name", "path", "entry", "artifact"):
            t[key] = EVIL
        t["error"] = EVIL if t["error"] else ""
        t["call_site"] = "```\n" + EVIL
    for c in [t["headline"] for t in found["targets"] if t["faster"]]:
        c["baseline"] = c["metric"] = EVIL
    for entry in (*found["baselines"], *found["rejected"], *found["levers"]):
        entry["target"] = EVIL
    for lever in found["levers"]:
        lever["reason"] = EVIL
    found["rejected"] = [r | {"stopped": {EVIL: 3}} for r in found["rejected"]]
    found["environment"] = {EVIL: {"gpu": {"name": EVIL}, "torch": EVIL}}
    found["skipped"] = [{"what": EVIL, "reason": EVIL}]
    found["command"] = EVIL
    return finished(
        summarise(found), head_sha="b" * 40, reason=EVIL, unpublished=EVIL, run_url=f"https://evil.example/){EVIL}"
    )


def states() -> dict[str, Seen]:
    sha = "b" * 40
    return {
        "queued": Seen("queued", sha),
        "running": Seen("running", sha),
        "nothing": nothing(),
        "no_target": Seen("nothing", sha),
        "gained": gained(pull_number=8, pull_url="https://github.com/acme/kernels/pull/8"),
        "refused": Seen("refused", sha, "the pull request comes from a fork"),
        "error": failed(),
        "lost": finished(None, head_sha=sha),
        "cancelled": finished(None, head_sha=sha, cancelled=True),
    }
