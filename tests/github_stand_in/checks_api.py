"""Check runs, comments and issues: what people see of the bot."""

from __future__ import annotations

from typing import Any

from tests.github_stand_in.hub import Answer, Arguments, Hub, Repo, forbidden, invalid, not_found

Body = dict[str, Any]
_ANNOTATIONS = 50
_CHECK_TEXT = 65_535
_COMMENT = 65_536


def create_check(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    if not repo.sha(f"{b['head_sha']}^{{commit}}"):
        return invalid(f"No commit found for SHA: {b['head_sha']}")
    if (wrong := _check_limits(b)) is not None:
        return wrong
    i = hub.next_id()
    e = hub.description.example("checks/create", 201)
    e |= {"id": i, "url": hub.api(repo, f"/check-runs/{i}"), "html_url": hub.page(repo, f"/runs/{i}")}
    e["pull_requests"] = []
    e["app"]["slug"] = hub.app
    e["output"] |= {"annotations_count": 0, "title": None, "summary": None, "text": None}
    e |= {"conclusion": None, "status": "queued", "completed_at": None}
    repo.checks[i] = e
    repo.annotations[i] = []
    _apply(repo, i, b)
    return 201, e


def update_check(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    i = int(a["check_run_id"])
    e = repo.checks.get(i)
    if e is None:
        return not_found()
    if e["app"]["slug"] != hub.app:
        return forbidden("Invalid app_id `2` - check run can only be modified by the GitHub App that created it.")
    if (wrong := _check_limits(b)) is not None:
        return wrong
    _apply(repo, i, b)
    return 200, e


def list_checks(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    """Newest first. With the filter `latest`, which is GitHub's default, only the newest of each app and name."""
    sha = repo.sha(f"{a['ref']}^{{commit}}")
    found = [e for _, e in sorted(repo.checks.items(), reverse=True) if e["head_sha"] == sha]
    found = [e for e in found if q.get("check_name", e["name"]) == e["name"]]
    if q.get("filter", "latest") == "latest":
        newest: dict[tuple[str, str], Body] = {}
        for e in found:
            newest.setdefault((e["app"]["slug"], e["name"]), e)
        found = list(newest.values())
    return 200, {"total_count": len(found), "check_runs": _page(found, q)}


def create_comment(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    n = int(a["issue_number"])
    if n not in repo.pulls and n not in repo.issues:
        return not_found()
    if len(b["body"]) > _COMMENT:
        return invalid("Body is too long (maximum is 65536 characters)", "IssueComment", "data", "unprocessable")
    return 201, add_comment(hub, repo, n, hub.login, b["body"])


def add_comment(hub: Hub, repo: Repo, number: int, login: str, body: str) -> Body:
    """A comment by `login`, as if somebody had typed it."""
    i = hub.next_id()
    e: Body = hub.description.example("issues/create-comment", 201)
    e |= {
        "id": i,
        "body": body,
        "url": hub.api(repo, f"/issues/comments/{i}"),
        "issue_url": hub.api(repo, f"/issues/{number}"),
    }
    e["user"] |= {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"}
    repo.comments[i] = e
    return e


def list_comments(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    url = hub.api(repo, f"/issues/{a['issue_number']}")
    return 200, _page([c for c in repo.comments.values() if c["issue_url"] == url], q)


def create_issue(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    n = len(repo.pulls) + len(repo.issues) + 1
    e = hub.description.example("issues/create", 201)
    e |= {
        "id": hub.next_id(),
        "number": n,
        "title": b["title"],
        "body": b.get("body"),
        "state": "open",
        "url": hub.api(repo, f"/issues/{n}"),
        "html_url": hub.page(repo, f"/issues/{n}"),
    }
    e.pop("pull_request", None)
    e["user"]["login"] = hub.login
    repo.issues[n] = e
    return 201, e


def update_issue(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    e = repo.issues.get(int(a["issue_number"]))
    if e is None:
        return not_found()
    e |= {k: b[k] for k in ("title", "body", "state") if k in b}
    return 200, e


def list_issues(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    """Newest first; pull requests are issues too, but those are left out here."""
    found = [e for _, e in sorted(repo.issues.items(), reverse=True)]
    wanted = q.get("state", "open")
    found = [e for e in found if wanted in ("all", e["state"]) and q.get("creator") in (None, e["user"]["login"])]
    return 200, _page(found, q)


def _apply(repo: Repo, i: int, b: Body) -> None:
    e = repo.checks[i]
    e |= {k: b[k] for k in ("name", "head_sha", "status", "conclusion", "external_id", "details_url") if k in b}
    if "conclusion" in b:
        e |= {"status": "completed", "completed_at": "2026-12-01T00:00:00Z"}
    elif "status" in b:
        e |= {"conclusion": None, "completed_at": None}
    output = dict(b.get("output", {}))
    # Every update adds its annotations to those that are there.
    repo.annotations[i] += output.pop("annotations", [])
    e["output"] |= output | {"annotations_count": len(repo.annotations[i])}


def _check_limits(b: Body) -> Answer | None:
    output = b.get("output", {})
    if len(output.get("annotations", [])) > _ANNOTATIONS:
        return invalid("Only 50 annotations are permitted")
    if any(len(output.get(k, "")) > _CHECK_TEXT for k in ("summary", "text")):
        return invalid("Only 65535 characters are allowed")
    return None


def _page(found: list[Body], q: Arguments) -> list[Body]:
    size, page = int(q.get("per_page", 30)), int(q.get("page", 1))
    return found[(page - 1) * size : page * size]
