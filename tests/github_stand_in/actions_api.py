"""Workflow runs and their artifacts."""

from __future__ import annotations

from typing import Any

from tests.github_stand_in.hub import Answer, Arguments, Hub, Repo, not_found

Body = dict[str, Any]


def list_artifacts(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    """Newest first; expired ones too."""
    made = []
    for i, (run, name, created) in reversed(list(enumerate(repo.artifacts, 1))):
        if q.get("name", name) != name:
            continue
        e = dict(hub.description.example("actions/list-artifacts-for-repo")["artifacts"][0])
        e |= {"id": i, "name": name, "created_at": created, "workflow_run": dict(e["workflow_run"]) | {"id": run}}
        made.append(e)
    size, page = int(q.get("per_page", 30)), int(q.get("page", 1))
    return 200, {"total_count": len(made), "artifacts": made[(page - 1) * size:page * size]}


def get_run(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    i = int(a["run_id"])
    if i not in repo.runs:
        return not_found()
    status = repo.runs[i]
    e = hub.description.example("actions/get-workflow-run")
    e |= {"id": i, "status": status, "conclusion": "success" if status == "completed" else None,
          "html_url": hub.page(repo, f"/actions/runs/{i}")}
    return 200, e


def cancel_run(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    i = int(a["run_id"])
    if i not in repo.runs:
        return not_found()
    if repo.runs[i] == "completed":
        return 409, {"message": "Cannot cancel a workflow run that is completed."}
    repo.runs[i] = "completed"
    return 202, {}
