"""Earlier workflow runs of a pull request or branch.

A workflow run does not say which pull request it is for where a comment started it. What does is the artifact in which
the phase authorise hands on its job: its name is the same for all runs of one source, and GitHub lists artifacts by
name. https://docs.github.com/en/rest/actions/artifacts#list-artifacts-for-a-repository
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

from kernelopt_bot.events.job import Job
from kernelopt_bot.publish.github_errors import Answered
from kernelopt_bot.publish.permission import needing
from kernelopt_bot.publish.rest import Json, Rest

_RECENT = 30


def source_of(job: Job) -> str:
    """The pull request or the branch, in a form that names of artifacts and concurrency groups may have."""
    if job.number:
        return f"pr-{job.number}"
    return f"branch-{hashlib.sha256(job.source_branch.encode()).hexdigest()[:12]}"


def artifact_of(job: Job, *, asked: bool | None = None) -> str:
    """Name of the artifact that holds the job; `asked`: by a command or a label, None: as the job itself."""
    by_person = job.asked_by_person if asked is None else asked
    return f"kernelopt-{'command' if by_person else 'event'}-{source_of(job)}"


class Runs:
    """Seen from the workflow run `own`, which counts in nothing here. `now` is the time."""

    def __init__(self, rest: Rest, own: int, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._rest = rest
        self._own = own
        self._now = now

    def today(self, job: Job, *, asked: bool) -> int:
        """Runs of the same source since midnight UTC. Raises UserError."""
        day = self._now().astimezone(UTC).date().isoformat()
        found = self._artifacts(artifact_of(job, asked=asked), 100)
        return len({a["workflow_run"]["id"] for a in found if str(a["created_at"]).startswith(day)})

    def unfinished(self, job: Job) -> list[Json]:
        """Runs of the same source that are not over, newest first. Raises UserError."""
        found = [a for asked in (True, False) for a in self._artifacts(artifact_of(job, asked=asked), _RECENT)]
        ids = sorted({int(a["workflow_run"]["id"]) for a in found}, reverse=True)[:_RECENT]
        runs = [self._rest.request("GET", f"actions/runs/{i}", doing="reading a workflow run") for i in ids]
        return [r for r in runs if r["status"] != "completed"]

    def cancel(self, job: Job) -> list[Json]:
        """Asks for the end of the unfinished runs of the same source; those that were still to be ended. Raises
        UserError."""
        ended = []
        with needing("actions: write"):
            for run in self.unfinished(job):
                try:
                    self._rest.request("POST", f"actions/runs/{run['id']}/cancel", repeatable=True,
                                       doing="cancelling a workflow run")
                except Answered as e:
                    if e.status != 409:  # It ended meanwhile.
                        raise
                else:
                    ended.append(run)
        return ended

    def _artifacts(self, name: str, limit: int) -> list[Json]:
        found = self._rest.pages("actions/artifacts", query={"name": name}, key="artifacts", limit=limit,
                                 doing="looking for earlier runs")
        return [a for a in found if (a.get("workflow_run") or {}).get("id") not in (None, self._own)]
