"""What there is to be seen of one run, whatever it is shown in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelopt_bot.report.summary import RunSummary

State = Literal["queued", "running", "nothing", "gained", "refused", "error", "cancelled"]
UNFINISHED: tuple[State, ...] = ("queued", "running")


@dataclass(frozen=True)
class Seen:
    """One run, for people. All text in it is of unknown origin and is escaped where it is shown."""

    state: State
    head_sha: str
    reason: str = ""
    """Why it was refused or cancelled, or what went wrong; one or more lines without secrets."""
    run: RunSummary | None = None
    asked: bool = False
    """Somebody asked for it with a command, so an answer is owed whatever comes of it."""
    pull_number: int | None = None
    pull_url: str = ""
    """Of our own pull request; '' where there is none."""
    unpublished: str = ""
    """Why a gain has no pull request of ours."""
    run_url: str = ""
    """Page of the workflow run."""
    notes: tuple[tuple[str, str], ...] = ()
    """(artifact, what became of it) of committed ones, and what else there is to say, with ''."""

    @property
    def title(self) -> str:
        """One line of at most 120 characters, without markup."""
        if self.run is not None and self.state in ("gained", "nothing", "error", "cancelled"):
            total = len(self.run.targets)
            targets = f"{total} target{'' if total == 1 else 's'}"
            failed = len(self.run.of("error"))
            also = f", {failed} could not be handled" if failed and self.run.faster else ""
            if self.run.faster:
                return f"{len(self.run.faster)} of {targets} faster{also}"
            if self.state == "error" and failed:
                return f"{failed} of {targets} could not be handled"
            if self.state == "nothing":
                if (looked := sum(bool(what) for what, _ in self.notes)) and not total:
                    return f"{looked} committed artifact{'' if looked == 1 else 's'} looked at"
                return f"nothing adopted for {targets}" if total else "no target to optimise"
        return _TITLES[self.state]


_TITLES: dict[State, str] = {
    "queued": "waiting for a GPU runner",
    "running": "searching",
    "nothing": "nothing adopted",
    "gained": "faster",
    "refused": "not run",
    "error": "could not finish",
    "cancelled": "cancelled",
}


def finished(
    run: RunSummary | None,
    *,
    head_sha: str,
    reason: str = "",
    cancelled: bool = False,
    asked: bool = False,
    pull_number: int | None = None,
    pull_url: str = "",
    unpublished: str = "",
    run_url: str = "",
    notes: tuple[tuple[str, str], ...] = (),
) -> Seen:
    """The end of a run: `run` is None where execute left nothing behind (offline, killed, failed before it began).

    What was verified before an end that came too early still counts as gained.
    """
    state: State
    if run is not None and run.faster:
        state = "gained"
    elif cancelled:
        state = "cancelled"
    elif run is None or run.of("error"):
        state = "error"
    else:
        state = "nothing"
    if run is None and not reason and cancelled:
        reason = "the job was cancelled, by a person, by a newer push or at its time limit"
    elif run is None and not reason:
        reason = "the run ended without a result: the runner was lost, or the job was stopped"
    if run is not None and not reason:
        reason = run.stopped
    return Seen(state, head_sha, reason, run, asked, pull_number, pull_url, unpublished, run_url, notes)


