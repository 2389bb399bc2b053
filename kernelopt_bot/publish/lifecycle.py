"""A pull request of ours from its opening to its end.

Each step leaves a state that the next run understands, so that a run which dies at any request is taken up: the branch
says by its last commit's trailers what it holds, the pull request by its mark (`marks.py`) what it describes and
whether reviewers and labels were asked for. Reading fails loudly: a look-up that failed never creates anything.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from kernelopt_bot.publish.branches import Branches, Tip
from kernelopt_bot.publish.github_errors import Answered, Denied
from kernelopt_bot.publish.key import base_name, key_of
from kernelopt_bot.publish.marks import DONE, NEW, closed_state, mark_of, marked
from kernelopt_bot.publish.opened import offered
from kernelopt_bot.publish.publication import Publication, Published, Why, Withdrawal
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.reviewers import PLACES, chosen, owners_of
from kernelopt_bot.report import escape
from kernelopt_bot.report.templates import environment
from kernelopt_bot.report.text import shorten

_LINK_BODY = 1500  # Characters: servers take addresses of some 8,000 bytes, and encoding makes them longer.


class Lifecycle:
    """One operation on one branch of ours. `page` is the repository's address for people.

    Every method raises UserError: `Denied` where the token may not do it, `Raced` where the branch moved meanwhile and
    the operation is to be done again from its beginning.
    """

    def __init__(self, rest: Rest, page: str) -> None:
        self._rest = rest
        self._page = page
        self._branches = Branches(rest)
        self._notes: list[str] = []

    def publish(self, p: Publication) -> Published:
        """See `Forge.publish`."""
        if reason := self._moved(p):
            return Published("reported", p.branch, reason=reason)
        key = key_of(p.commit_message)
        tip = self._branches.tip(p.branch)
        pulls = self._pulls(p.branch)
        pull = _open(pulls)
        if tip is not None and not tip.ours:
            return self._stopped(p.branch, tip, pull)
        if (kept := self._others(p, tip, pull)) is not None:
            return kept
        there = tip is not None and tip.trailers.key == key and tip.trailers.base == base_name(p.base_ref)
        if pull is None:
            if (ended := _ended(pulls, key, p.base_ref)) is not None:
                why = "it was closed or merged before and is not opened again"
                return _told("unchanged", p.branch, tip, ended, why)
        elif self._conflicts(pull):
            # Reviews of what no longer applies must not count for what replaces it.
            self._close(pull, tip, "conflict", f"Another one takes its place, from the head of {p.base_ref}.")
            pull, there = None, False
        elif there:
            return self._healed(p, key, tip, pull)
        head = tip.sha if there and tip is not None else self._branches.commit(p, tip)
        if not head:
            return self._already_there(p, tip, pull)
        if pull is None:
            return self._opened(p, key, head)
        self._finish(p, key, pull)
        return self._told_of(p, "updated", head, pull)

    def withdraw(self, w: Withdrawal) -> Published:
        """See `GitHubForge.withdraw`."""
        pulls = self._pulls(w.branch)
        pull = _open(pulls)
        tip = self._branches.tip(w.branch)
        if pull is None:
            return _told("unchanged", w.branch, tip, pulls[0] if pulls else None, "there is no open pull request")
        if tip is not None and not tip.ours:
            return self._stopped(w.branch, tip, pull)
        if (kept := self._others(w, tip, pull)) is not None:
            return kept
        self._close(pull, tip, w.why, w.detail)
        return _told("closed", w.branch, tip, pull, w.why)

    def source_closed(self, branch: str, source: int, merged_into: str) -> Published:
        """See `GitHubForge.source_closed`."""
        if not merged_into:
            return self.withdraw(Withdrawal(branch, "source closed", f"Pull request {source} was closed unmerged."))
        pulls = self._pulls(branch)
        pull = _open(pulls)
        tip = self._branches.tip(branch)
        if pull is None:
            return _told("unchanged", branch, tip, pulls[0] if pulls else None, "there is no open pull request")
        if tip is not None and not tip.ours:
            return self._stopped(branch, tip, pull)
        again = merged_into if tip is None or tip.trailers.base != base_name(merged_into) else ""
        if pull["base"]["ref"] == merged_into:
            return _told("unchanged", branch, tip, pull, "it goes against that branch already", again)
        try:
            self._edit(pull, {"base": merged_into}, "retargeting the pull request")
        except Answered as e:
            if e.status != 422 or "no new commits" not in e.said.lower():
                raise
            self._close(pull, tip, "already there", "It went in with the pull request that caused it.")
            return _told("closed", branch, tip, pull, "already there")
        return _told("retargeted", branch, tip, pull, f"pull request {source} was merged", again)

    def _others(self, asked: Publication | Withdrawal, tip: Tip | None, pull: Json | None) -> Published | None:
        """What there is to say where the open pull request offers more than this run looked at; else None."""
        if not asked.looked or pull is None or tip is None:
            return None
        there = offered(self._rest, str(pull["base"]["sha"]), tip.sha, asked.artifact_root)
        others = sorted(there - set(asked.looked))
        if tip.trailers.edits - {base_name(name) for name in asked.looked}:
            others.append("a Triton kernel")
        if not others:
            return None
        why = (f"pull request #{pull['number']} offers kernels for {', '.join(others)[:300]}, which this run did not "
               "look at: merge or close it first")
        return _told("reported", asked.branch, tip, pull, why)

    def _moved(self, p: Publication) -> str:
        at = self._branches.sha(p.base_ref)
        if not at:
            return f"the branch {p.base_ref} is gone"
        if p.source is not None and at != p.base_sha:
            return f"{p.base_ref} moved on to {at[:12]} meanwhile; that push has a run of its own"
        return ""

    def _pulls(self, branch: str) -> list[Json]:
        """Pull requests from our branch, newest first, closed ones too."""
        owner = self._rest.repository.partition("/")[0]
        asked = {"state": "all", "head": f"{owner}:{branch}"}
        found = self._rest.pages("pulls", query=asked, doing="looking for the pull request")
        # An owner may have two repositories of one network.
        return [x for x in found if (x["head"].get("repo") or {}).get("full_name") == self._rest.repository]

    def _conflicts(self, pull: Json) -> bool:
        """What GitHub has not worked out yet counts as no conflict: the next run sees it."""
        shown = self._rest.request("GET", f"pulls/{pull['number']}", doing="reading the pull request")
        return shown.get("mergeable") is False

    def _healed(self, p: Publication, key: str, tip: Tip | None, pull: Json) -> Published:
        mark = mark_of(pull["body"])
        # Without a mark a person wrote the body, and it stays.
        if mark is None or (mark.key == key and mark.state == DONE and pull["base"]["ref"] == p.base_ref):
            return _told("unchanged", p.branch, tip, pull)
        self._finish(p, key, pull)
        return self._told_of(p, "updated", tip.sha if tip is not None else "", pull)

    def _already_there(self, p: Publication, tip: Tip | None, pull: Json | None) -> Published:
        why = f"{p.base_ref} has exactly these files"
        if pull is None:
            return _told("unchanged", p.branch, tip, None, why)
        self._close(pull, tip, "already there", f"{p.base_ref} has exactly these files.")
        return _told("closed", p.branch, tip, pull, why)

    def _opened(self, p: Publication, key: str, head: str) -> Published:
        new = {"base": p.base_ref, "head": p.branch, "title": p.title, "body": marked(p.body, key, NEW)}
        try:
            pull = self._create(new | {"draft": p.draft})
        except Denied as e:
            return Published("reported", p.branch, head, url=compare_link(self._page, p), reason=str(e))
        except Answered as e:
            if not p.draft or e.status != 422 or "draft" not in e.said.lower():
                raise
            self._notes.append("this repository has no drafts; the pull request is ready for review")
            pull = self._create(new)
        self._finish(p, key, pull)
        return self._told_of(p, "created", head, pull)

    def _create(self, new: Json) -> Json:
        found: Json = self._rest.request(
            "POST", "pulls", new, find=lambda: _open(self._pulls(new["head"])), doing="opening the pull request"
        )
        return found

    def _finish(self, p: Publication, key: str, pull: Json) -> None:
        """Reviewers once, labels, then title, body and the mark which says that all of it was done."""
        mark = mark_of(pull["body"])
        if mark is not None and mark.state == NEW:
            self._ask_reviewers(p, pull)
        missing = sorted(set(p.labels) - {str(label["name"]) for label in pull["labels"]})
        if missing:
            path = f"issues/{pull['number']}/labels"
            self._rest.request(
                "POST", path, {"labels": missing}, repeatable=True, doing="labelling the pull request"
            )
        changes: Json = {"title": p.title, "body": marked(p.body, key, DONE)}
        if pull["base"]["ref"] != p.base_ref:
            changes["base"] = p.base_ref
        self._edit(pull, changes, "updating the pull request")

    def _ask_reviewers(self, p: Publication, pull: Json) -> None:
        author = "" if p.author.lower() == str((pull.get("user") or {}).get("login", "")).lower() else p.author
        wanted = chosen(p.reviewers, () if p.reviewers else self._owners(p), author)
        if not wanted:
            return
        asked: Json = {k: list(v) for k, v in (("reviewers", wanted.users), ("team_reviewers", wanted.teams)) if v}
        path = f"pulls/{pull['number']}/requested_reviewers"
        try:
            self._rest.request("POST", path, asked, repeatable=True, doing="asking for a review")
        except Answered as e:
            # Somebody who is no collaborator, or a team that the token can't see: the pull request stands without.
            if e.status not in (403, 404, 422):
                raise
            self._notes.append(f"no review was asked for: {e.what}")

    def _owners(self, p: Publication) -> tuple[str, ...]:
        for place in PLACES:
            text = self._branches.file(p.base_sha, place)
            if text is not None:
                return owners_of(text, sorted(p.files))
        return ()

    def _stopped(self, branch: str, tip: Tip, pull: Json | None) -> Published:
        why = f"branch {branch} has commits that are not ours; it was left alone"
        if pull is not None:
            text = environment("publish").get_template("stopped.md.j2").render(branch=escape.code_span(branch))
            self._say(pull, f"<!-- kernelopt stopped at={tip.sha} -->", text)
        return _told("reported", branch, tip, pull, why)

    def _close(self, pull: Json, tip: Tip | None, why: Why, detail: str) -> None:
        text = environment("publish").get_template("closing.md.j2").render(why=why, detail=escape.text(detail))
        self._say(pull, f"<!-- kernelopt closed={closed_state(why)} at={tip.sha if tip is not None else ''} -->", text)
        mark = mark_of(pull["body"])
        key = mark.key if mark is not None else tip.trailers.key if tip is not None else "0" * 64
        body = marked(pull["body"] or "", key, closed_state(why))
        self._edit(pull, {"state": "closed", "body": body}, "closing the pull request")

    def _say(self, pull: Json, mark: str, text: str) -> None:
        """A comment, once: `mark` is its last line."""
        path = f"issues/{pull['number']}/comments"

        def find() -> Any:
            said = self._rest.pages(path, doing="reading the comments")
            return next((c for c in said if (c["body"] or "").rstrip().endswith(mark) and _may_be_ours(c, pull)), None)

        if find() is None:
            body = f"{text.rstrip()}\n\n{mark}\n"
            self._rest.request("POST", path, {"body": body}, find=find, doing="commenting on the pull request")

    def _edit(self, pull: Json, changes: Json, doing: str) -> None:
        self._rest.request("PATCH", f"pulls/{pull['number']}", changes, doing=doing)

    def _told_of(self, p: Publication, operation: Any, head: str, pull: Json) -> Published:
        return Published(
            operation,
            p.branch,
            head,
            pull["number"],
            pull["html_url"],
            files=tuple(sorted(p.files)),
            notes=tuple(self._notes),
        )


def compare_link(page: str, p: Publication) -> str:
    """GitHub's form for a pull request, filled in. `page` is the repository's address for people."""
    filled = {"expand": "1", "title": p.title, "body": shorten(p.body, _LINK_BODY)}
    branches = f"{quote(p.base_ref, safe='')}...{quote(p.branch, safe='')}"
    return f"{page}/compare/{branches}?{urlencode(filled, quote_via=quote)}"


def _may_be_ours(comment: Json, pull: Json) -> bool:
    """Whether who wrote the comment also opened the pull request, or is an App: no other person's words silence us."""
    author = comment.get("user") or {}
    return author.get("type") == "Bot" or author.get("login") == (pull.get("user") or {}).get("login")


def _open(pulls: list[Json]) -> Json | None:
    return next((x for x in pulls if x["state"] == "open"), None)


def _ended(pulls: list[Json], key: str, base_ref: str) -> Json | None:
    """The last pull request if it offered the same to the same branch and somebody else than us ended it."""
    last = pulls[0] if pulls else None
    if last is None or last["base"]["ref"] != base_ref:
        return None
    mark = mark_of(last["body"])
    return last if mark is not None and mark.key == key and not mark.closed else None


def _told(
    operation: Any, branch: str, tip: Tip | None, pull: Json | None, reason: str = "", verify_again: str = ""
) -> Published:
    return Published(
        operation,
        branch,
        tip.sha if tip is not None else "",
        pull["number"] if pull is not None else None,
        pull["html_url"] if pull is not None else "",
        reason,
        verify_again=verify_again,
    )
