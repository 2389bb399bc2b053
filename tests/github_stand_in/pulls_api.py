"""Pull requests, comments, labels, checks and permissions."""

from __future__ import annotations

from typing import Any

from tests.github_stand_in.hub import Answer, Arguments, GitFailed, Hub, Repo, invalid, not_found

Body = dict[str, Any]


def create_pull(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    head = b["head"].split(":")[-1]
    for name, branch in (("head", head), ("base", b["base"])):
        if not repo.sha(f"refs/heads/{branch}"):
            return invalid(f"{name} is no branch", "PullRequest", name, "invalid")
    if any(
        p["state"] == "open" and (p["head"]["ref"], p["base"]["ref"]) == (head, b["base"]) for p in repo.pulls.values()
    ):
        return invalid(f"A pull request already exists for {repo.owner}:{head}.", "PullRequest", "head")
    if repo.git("rev-list", "--count", f"refs/heads/{b['base']}..refs/heads/{head}") == "0":
        return invalid(f"No commits between {b['base']} and {head}", "PullRequest", "head")
    n = len(repo.pulls) + len(repo.issues) + 1
    e = hub.description.example("pulls/create", 201)
    e |= {
        "number": n,
        "id": hub.next_id(),
        "title": b.get("title") or "",
        "body": b.get("body"),
        "draft": b.get("draft", False),
        "url": hub.api(repo, f"/pulls/{n}"),
        "issue_url": hub.api(repo, f"/issues/{n}"),
        "html_url": hub.page(repo, f"/pull/{n}"),
        "comments_url": hub.api(repo, f"/issues/{n}/comments"),
        "state": "open",
        "labels": [],
        "merged": False,
    }
    e["head"]["ref"], e["base"]["ref"] = head, b["base"]
    e["head"]["label"], e["base"]["label"] = f"{repo.owner}:{head}", f"{repo.owner}:{b['base']}"
    if hub.others:
        e["user"] |= {"login": hub.login, "type": "Bot"}
    e["requested_teams"] = []  # GitHub's own example lacks the field `type`.
    repo.pulls[n] = e
    return 201, _pull(hub, repo, n)


def get_pull(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    n = int(a["pull_number"])
    if n not in repo.pulls:
        return not_found()
    e = _pull(hub, repo, n)
    return 200, e | {"mergeable": repo.mergeable[n] if n in repo.mergeable else _mergeable(repo, e)}


def list_pulls(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    """Newest first, as GitHub's default order is."""
    found = []
    for n in sorted(repo.pulls, reverse=True):
        p = _pull(hub, repo, n)
        fits = (
            q.get("state", "open") in ("all", p["state"])
            and q.get("head", p["head"]["label"]) == p["head"]["label"]
            and q.get("base", p["base"]["ref"]) == p["base"]["ref"]
        )
        if fits:
            e = hub.description.example("pulls/list")[0]
            e |= {k: p[k] for k in e if k in p and k not in ("requested_teams", "_links")}
            e["requested_teams"] = []
            found.append(e)
    size, page = int(q.get("per_page", 30)), int(q.get("page", 1))
    return 200, found[(page - 1) * size : page * size]


def update_pull(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    n = int(a["pull_number"])
    if n not in repo.pulls:
        return not_found()
    if "base" in b:
        if not repo.sha(f"refs/heads/{b['base']}"):
            return invalid("Proposed base branch was not found", "PullRequest", "base", "invalid")
        head = repo.pulls[n]["head"]["ref"]
        if repo.git("rev-list", "--count", f"refs/heads/{b['base']}..refs/heads/{head}") == "0":
            return invalid(f"There are no new commits between base branch '{b['base']}' and head branch '{head}'",
                           "PullRequest", "base")
        repo.pulls[n]["base"] |= {"ref": b["base"], "label": f"{repo.owner}:{b['base']}"}
    repo.pulls[n] |= {k: b[k] for k in ("title", "body", "state") if k in b}
    return 200, _pull(hub, repo, n)


def get_issue(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    n = int(a["issue_number"])
    if n not in repo.pulls:
        return not_found()
    e = hub.description.example("issues/get")
    e |= {
        "number": n,
        "title": repo.pulls[n]["title"],
        "url": hub.api(repo, f"/issues/{n}"),
        "labels": _labels(repo, n),
        "comments_url": hub.api(repo, f"/issues/{n}/comments"),
    }
    return 200, e


def get_comment(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    e = repo.comments.get(int(a["comment_id"]))
    return (200, e) if e is not None else not_found()


def update_comment(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    e = repo.comments.get(int(a["comment_id"]))
    if e is None:
        return not_found()
    e["body"] = b["body"]
    return 200, e


def react(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    if int(a["comment_id"]) not in repo.comments:
        return not_found()
    e = hub.description.example("reactions/create-for-issue-comment", 201)
    e |= {"id": hub.next_id(), "content": b["content"]}
    repo.reactions.append(e)
    return 201, e


def create_label(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    if b["name"] in repo.labels:
        return invalid("Label already exists", "Label", "name", "already_exists")
    e = hub.description.example("issues/create-label", 201)
    e |= {
        "id": hub.next_id(),
        "name": b["name"],
        "color": b.get("color", "ededed"),
        "description": b.get("description", ""),
        "url": hub.api(repo, f"/labels/{b['name']}"),
    }
    repo.labels[b["name"]] = e
    return 201, e


def add_labels(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    n = int(a["issue_number"])
    if n not in repo.pulls:
        return not_found()
    names = repo.issue_labels.setdefault(n, [])
    for name in b["labels"]:
        if name not in repo.labels:
            create_label(hub, repo, a, q, {"name": name})
        if name not in names:
            names.append(name)
    return 200, _labels(repo, n)


def request_reviewers(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    """Only who may read the repository can be asked, and never the author."""
    n = int(a["pull_number"])
    if n not in repo.pulls:
        return not_found()
    people = b.get("reviewers", ())
    if repo.pulls[n]["user"]["login"] in people:
        return invalid("Review cannot be requested from pull request author.")
    if unknown := [name for name in people if repo.permissions.get(name, "none") == "none"]:
        return invalid(f"Reviews may only be requested from collaborators: {unknown}")
    asked = repo.requested.setdefault(n, [])
    asked += [x for x in (*people, *(f"@{team}" for team in b.get("team_reviewers", ()))) if x not in asked]
    e = hub.description.example("pulls/request-reviewers", 201)
    shown = _pull(hub, repo, n)
    same = ("number", "title", "body", "state", "html_url", "url", "labels", "requested_teams")
    return 201, e | {k: shown[k] for k in same}


def permission(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    known = repo.permissions.get(a["username"])
    if known is None:
        return not_found()
    e = hub.description.example("repos/get-collaborator-permission-level")
    e |= {"permission": known, "role_name": known}
    e["user"] |= {"login": a["username"], "role_name": known}
    return 200, e


def _pull(hub: Hub, repo: Repo, n: int) -> Body:
    """The pull request as it stands: its commits are wherever its branches are now."""
    e = repo.pulls[n]
    for side in ("head", "base"):
        e[side]["sha"] = repo.sha(f"refs/heads/{e[side]['ref']}") or e[side]["sha"]
        e[side]["repo"] = {**e[side]["repo"], "name": repo.name, "full_name": repo.full_name, "url": hub.api(repo)}
    if repo.sha(f"refs/heads/{e['head']['ref']}"):
        e["changed_files"] = len(repo.git("diff", "--name-only", f"{e['base']['sha']}...{e['head']['sha']}").split())
    return e | {"labels": _labels(repo, n)}


def _mergeable(repo: Repo, e: Body) -> bool:
    try:
        repo.git("merge-tree", "--write-tree", e["base"]["sha"], e["head"]["sha"])
    except GitFailed:
        return False
    return True


def _labels(repo: Repo, n: int) -> list[Body]:
    return [repo.labels[name] for name in repo.issue_labels.get(n, ())]
