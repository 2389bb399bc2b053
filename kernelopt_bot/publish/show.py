"""A run's state to everywhere that people look: the step's summary, the comment, the check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish import job_summary
from kernelopt_bot.publish.checks import CheckRun, notes_of
from kernelopt_bot.publish.comments import StickyComment
from kernelopt_bot.publish.github_errors import Answered
from kernelopt_bot.publish.rest import Rest
from kernelopt_bot.publish.seen import UNFINISHED, Seen
from kernelopt_bot.report.text import one_line


@dataclass(frozen=True)
class Place:
    pull_number: int | None
    """The pull request that caused the run; None for a push, a schedule or a run by hand."""
    external_id: str
    """The same in all phases of one attempt of a workflow run: `kernelopt-<run id>-<attempt>`."""
    app: str = "github-actions"
    """Slug of the App whose token is used; its comments are by `<app>[bot]`."""
    summary: Path | None = None
    """What `GITHUB_STEP_SUMMARY` names."""


def show(rest: Rest | None, seen: Seen, place: Place) -> tuple[str, ...]:
    """Shows `seen` in each place; what could not be written, one line each, for the log. Never raises.

    None of them is worth losing the others or the run for. `rest` is None where there is no token: then only the
    summary is written. The check comes last, so that a phase that was killed leaves it unfinished for the next one.
    """
    tasks: list[tuple[str, Callable[[], object]]] = []
    if place.summary is not None and seen.state not in UNFINISHED:
        path = place.summary
        tasks.append(("the job's summary", lambda: job_summary.append(seen, path)))
    if rest is not None and place.pull_number is not None:
        number, comments = place.pull_number, StickyComment(rest, f"{place.app}[bot]")
        tasks.append(("the comment", lambda: comments.show(number, seen)))
    if rest is not None and seen.head_sha:
        check = CheckRun(rest, place.app, place.external_id)
        tasks.append(("the check", lambda: check.show(seen, notes_of(seen))))
        bare = Seen("error", seen.head_sha, "what came of it could not be shown: see the run", run_url=seen.run_url)
        again: tuple[tuple[str, Callable[[], object]], ...] = (
            ("the check without notes", lambda: check.show(seen)), ("the bare check", lambda: check.show(bare)))
    failed = []
    for what, task in tasks:
        try:
            task()
        except Exception as e:
            failed.append(_said(what, e))
            # Somebody waits for the check to end, whatever it is that GitHub, or this code, did not take.
            if what != "the check" or seen.state in UNFINISHED or not _by_content(e):
                continue
            for smaller, repeat in again:
                try:
                    repeat()
                    break
                except Exception as e:
                    failed.append(_said(smaller, e))
    return tuple(failed)


def _by_content(error: Exception) -> bool:
    """Whether less content may do what more did not."""
    return not isinstance(error, UserError) or (isinstance(error, Answered) and error.status in (400, 413, 422))


def _said(what: str, error: Exception) -> str:
    why = str(error) if isinstance(error, UserError) else f"a bug in KernelOPT: {type(error).__name__}"
    return one_line(f"{what} could not be written: {why}")
