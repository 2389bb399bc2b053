"""The check run `KernelOPT`, one for each head commit, made and completed by one identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelopt_bot.publish import shown
from kernelopt_bot.publish.permission import needing
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.seen import UNFINISHED, Seen, State
from kernelopt_bot.report.summary import TargetSummary, gain_words
from kernelopt_bot.report.text import shorten, visible

NAME = "KernelOPT"
BATCH = 50
"""Annotations that one request may carry."""
MOST = 200
"""Annotations of one check."""
CONCLUSIONS: dict[State, str] = {
    "gained": "success",
    # Neutral satisfies a required check and is not green: nothing was improved, and nothing is wrong.
    "nothing": "neutral",
    "refused": "neutral",
    "error": "failure",
    "cancelled": "cancelled",
}
_TITLE = 64  # Characters of an annotation's title that GitHub shows on one line.


@dataclass(frozen=True)
class Annotation:
    path: str
    line: int
    """From 1."""
    level: Literal["notice", "warning", "failure"]
    title: str
    message: str

    def to_json(self) -> Json:
        """Annotations are plain text: control characters are spelled out, nothing else is changed."""
        return {
            "path": self.path,
            "start_line": self.line,
            "end_line": self.line,
            "annotation_level": self.level,
            "title": shorten(visible(self.title), 255),
            "message": shorten(visible(self.message, keep="\n"), 4000),
        }


def notes_of(seen: Seen) -> tuple[Annotation, ...]:
    """One for each target that got faster or could not be handled, at its class."""
    if seen.run is None:
        return ()
    found = []
    for t in seen.run.targets:
        if t.outcome == "unchanged":
            continue
        good = t.outcome == "faster"
        found.append(
            Annotation(
                t.path,
                t.line,
                "notice" if good else "warning",
                f"{shorten(t.entry, _TITLE - 30)} {'can be faster' if good else 'could not be optimised'}",
                f"{gain_words(t)}. {_where(t)}" if good else t.reason,
            )
        )
    return tuple(found)


def _where(t: TargetSummary) -> str:
    return "The edit is of this file." if t.kernel else f"The files that do it are in {t.artifact}."


class CheckRun:
    """`external_id` is the same in all phases of one attempt of a workflow run: its id and its attempt.

    `app` is the slug of the App whose token is used, `github-actions` for GITHUB_TOKEN. GitHub lets only the App that
    made a check run change it, so those of others are never touched.
    """

    def __init__(self, rest: Rest, app: str, external_id: str) -> None:
        self._rest = rest
        self._app = app
        self._external_id = external_id

    def show(self, seen: Seen, notes: tuple[Annotation, ...] = ()) -> int:
        """Makes the check of `seen.head_sha` or brings it up to date; its id. Killed anywhere and called again, it ends
        with the same check and each annotation once. Raises UserError.

        A finished state also concludes what an earlier run left unfinished on this commit.
        """
        with needing("checks: write"):
            return self._show(seen, notes)

    def _show(self, seen: Seen, notes: tuple[Annotation, ...]) -> int:
        found = self._find(seen.head_sha)
        body = self._body(seen)
        if found is None:
            found = self._rest.request(
                "POST",
                "check-runs",
                {"name": NAME, "head_sha": seen.head_sha, "external_id": self._external_id}
                | (body if seen.state in UNFINISHED else {"status": "in_progress"}),
                find=lambda: self._find(seen.head_sha),
                doing="making the check run",
            )
            if seen.state in UNFINISHED:
                return int(found["id"])
        if seen.state in UNFINISHED and found["status"] == "completed":
            return int(found["id"])  # A phase that was repeated late must not open a check again.
        self._bring_up_to_date(found, body, notes[:MOST])
        if seen.state not in UNFINISHED:
            self._conclude_stale(seen.head_sha)
        return int(found["id"])

    def _bring_up_to_date(self, found: Json, body: Json, notes: tuple[Annotation, ...]) -> None:
        path = f"check-runs/{found['id']}"
        # Annotations can only be added: those of a run that was killed half-way are there already.
        rest = notes[int((found.get("output") or {}).get("annotations_count") or 0) :]
        if not rest and _equal(found, body):
            return
        batches = [rest[i : i + BATCH] for i in range(0, len(rest), BATCH)] or [()]
        for i, batch in enumerate(batches):
            last = i == len(batches) - 1
            output = body["output"] | ({"annotations": [a.to_json() for a in batch]} if batch else {})
            # The conclusion comes last: a check that is green is complete.
            self._rest.request(
                "PATCH",
                path,
                body | {"output": output} if last else {"output": output},
                doing="updating the check run",
            )

    def _body(self, seen: Seen) -> Json:
        summary, text = shown.check(seen)
        output = {"title": seen.title, "summary": summary} | ({"text": text} if text.strip() else {})
        body: Json = {"output": output}
        if seen.run_url.startswith(("http://", "https://")):
            body["details_url"] = seen.run_url
        if seen.state in UNFINISHED:
            return body | {"status": "queued" if seen.state == "queued" else "in_progress"}
        return body | {"status": "completed", "conclusion": CONCLUSIONS[seen.state]}

    def _conclude_stale(self, head_sha: str) -> None:
        for c in self._ours(head_sha):
            if c["status"] != "completed" and c["external_id"] != self._external_id:
                output = {"title": "superseded", "summary": "A later run answered for this commit."}
                self._rest.request(
                    "PATCH",
                    f"check-runs/{c['id']}",
                    {"status": "completed", "conclusion": "cancelled", "output": output},
                    doing="concluding an earlier check run",
                )

    def _find(self, head_sha: str) -> Json | None:
        return next((c for c in self._ours(head_sha) if c["external_id"] == self._external_id), None)

    def _ours(self, head_sha: str) -> list[Json]:
        checks = self._rest.pages(
            f"commits/{head_sha}/check-runs",
            query={"check_name": NAME, "filter": "all"},
            key="check_runs",
            doing="looking for the check run",
        )
        return [c for c in checks if (c.get("app") or {}).get("slug") == self._app]


def _equal(found: Json, body: Json) -> bool:
    output = found.get("output") or {}
    wanted = body["output"]
    return (
        found["status"] == body["status"]
        and found.get("conclusion") == body.get("conclusion")
        and all((output.get(k) or "").strip() == wanted.get(k, "").strip() for k in ("title", "summary", "text"))
    )
