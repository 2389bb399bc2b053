"""The stand-in is only worth something if it refuses what GitHub would refuse."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.github_stand_in import TOKEN, Hub, Repo, start
from tests.github_stand_in.description import Description
from tests.github_stand_in.server import HANDLERS, shared_description


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = start(tmp_path)
    yield hub
    hub.stop()


@pytest.fixture
def repo(hub: Hub) -> Repo:
    repo = hub.create_repo("acme/kernels")
    repo.commit("work", {"a.txt": "a\n"})
    return repo


def call(hub: Hub, method: str, path: str, body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{hub.url}{path}", data, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            raw = answer.read()
            return answer.status, json.loads(raw) if raw else None
    except HTTPError as e:
        with e:
            return e.code, json.loads(e.read())


def test_every_described_operation_is_handled_and_the_other_way_round() -> None:
    assert {o.id for o in shared_description().operations} == set(HANDLERS)


def test_the_whole_way_of_a_pull_request_is_as_described(hub: Hub, repo: Repo) -> None:
    at = "/repos/acme/kernels"
    assert call(hub, "GET", at)[1]["permissions"]["push"] is True
    head = call(hub, "GET", f"{at}/git/ref/heads/work")[1]["object"]["sha"]
    base = call(hub, "GET", f"{at}/git/commits/{head}")[1]
    assert call(hub, "GET", f"{at}/git/trees/{base['tree']['sha']}?recursive=1")[1]["tree"][1]["path"] == "a.txt"
    blob = call(hub, "POST", f"{at}/git/blobs", {"content": "bmV3Cg==", "encoding": "base64"})[1]["sha"]
    assert call(hub, "GET", f"{at}/git/blobs/{blob}")[0] == 200
    entry = {"path": "b.txt", "mode": "100644", "type": "blob", "sha": blob}
    tree = call(hub, "POST", f"{at}/git/trees", {"base_tree": base["tree"]["sha"], "tree": [entry]})[1]["sha"]
    commit = call(hub, "POST", f"{at}/git/commits", {"message": "new", "tree": tree, "parents": [head]})[1]["sha"]
    assert call(hub, "POST", f"{at}/git/refs", {"ref": "refs/heads/new", "sha": commit})[0] == 201
    assert call(hub, "POST", f"{at}/git/refs", {"ref": "refs/heads/new", "sha": commit})[0] == 422
    assert repo.git("show", "new:b.txt") == "new"
    assert [r["ref"] for r in call(hub, "GET", f"{at}/git/matching-refs/heads/ne")[1]] == ["refs/heads/new"]
    assert call(hub, "GET", f"{at}/compare/{head}...{commit}")[1]["status"] == "ahead"
    made = call(hub, "POST", f"{at}/pulls", {"title": "t", "head": "new", "base": "work", "body": "b"})
    assert (made[0], made[1]["number"], made[1]["head"]["sha"], made[1]["changed_files"]) == (201, 1, commit, 1)
    assert call(hub, "POST", f"{at}/pulls", {"title": "t", "head": "new", "base": "work"})[0] == 422
    assert call(hub, "POST", f"{at}/issues/1/labels", {"labels": ["perf"]})[0] == 200
    assert call(hub, "POST", f"{at}/labels", {"name": "perf"})[0] == 422
    assert [p["number"] for p in call(hub, "GET", f"{at}/pulls?head=acme:new&base=work")[1]] == [1]
    assert call(hub, "GET", f"{at}/pulls?head=acme:other")[1] == []
    assert call(hub, "PATCH", f"{at}/pulls/1", {"title": "u", "state": "closed"})[1]["state"] == "closed"
    assert call(hub, "GET", f"{at}/pulls")[1] == []
    assert call(hub, "GET", f"{at}/pulls?state=all")[1][0]["title"] == "u"
    assert call(hub, "GET", f"{at}/pulls/1")[1]["labels"][0]["name"] == "perf"
    assert call(hub, "GET", f"{at}/issues/1")[1]["title"] == "u"
    comment = call(hub, "POST", f"{at}/issues/1/comments", {"body": "hello"})[1]["id"]
    assert call(hub, "PATCH", f"{at}/issues/comments/{comment}", {"body": "hello again"})[0] == 200
    assert call(hub, "GET", f"{at}/issues/comments/{comment}")[1]["body"] == "hello again"
    assert [c["id"] for c in call(hub, "GET", f"{at}/issues/1/comments")[1]] == [comment]
    assert call(hub, "POST", f"{at}/issues/comments/{comment}/reactions", {"content": "rocket"})[0] == 201
    check = call(hub, "POST", f"{at}/check-runs", {"name": "kernelopt", "head_sha": commit, "status": "in_progress"})[
        1
    ]["id"]
    done = {"status": "completed", "conclusion": "neutral"}
    assert call(hub, "PATCH", f"{at}/check-runs/{check}", done)[1]["conclusion"] == "neutral"
    repo.permissions["alice"] = "write"
    assert call(hub, "GET", f"{at}/collaborators/alice/permission")[1]["permission"] == "write"
    assert call(hub, "GET", f"{at}/collaborators/mallory/permission")[0] == 404
    assert call(hub, "PATCH", f"{at}/git/refs/heads/new", {"sha": head})[0] == 422
    assert call(hub, "DELETE", f"{at}/git/refs/heads/new")[0] == 204
    assert hub.violations == []


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("GET", "/nowhere", None, "no such operation"),
        ("POST", "/repos/acme/kernels/pulls", {"title": "x"}, "'head' is a required property"),
        (
            "POST",
            "/repos/acme/kernels/pulls",
            {"title": "x", "head": "work", "base": "main", "foo": 1},
            "unknown key foo",
        ),
        ("GET", "/repos/acme/kernels/pulls?state=sleeping", None, "state"),
        ("GET", "/repos/acme/kernels/pulls?page=first", None, "page"),
        ("GET", "/repos/acme/kernels/pulls?colour=red", None, "unknown query parameter colour"),
        ("POST", "/repos/acme/kernels/issues/comments/1/reactions", {"content": "banana"}, "banana"),
        ("POST", "/repos/acme/kernels/issues/1/labels", [1], "body"),
    ],
)
def test_what_github_does_not_describe_is_a_violation(
    hub: Hub, repo: Repo, method: str, path: str, body: Any, said: str
) -> None:
    assert call(hub, method, path, body)[0] in (404, 422)
    assert len(hub.violations) == 1
    assert said in hub.violations[0]


def test_tokens_and_permissions(hub: Hub, repo: Repo) -> None:
    assert call(hub, "GET", "/repos/acme/kernels", token="other")[0] == 401
    repo.push = False
    assert call(hub, "POST", "/repos/acme/kernels/git/blobs", {"content": "x"})[0] == 403
    assert call(hub, "GET", "/repos/acme/kernels")[0] == 200
    assert call(hub, "GET", "/repos/acme/absent")[0] == 404


def test_faults_come_before_or_after_the_work(hub: Hub, repo: Repo) -> None:
    blob = {"content": "x", "encoding": "utf-8"}
    hub.fail("git/create-blob", 503, times=2)
    hub.fail("*", 502, after=True)
    assert [call(hub, "POST", "/repos/acme/kernels/git/blobs", blob)[0] for _ in range(4)] == [503, 503, 502, 201]
    assert [status for _, status in hub.log] == [503, 503, 502, 201]


def test_git_needs_the_token_and_pushes(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    url = f"{hub.url}/acme/kernels.git"
    clone = tmp_path / "clone"
    quiet = {"GIT_TERMINAL_PROMPT": "0", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    assert subprocess.run(["git", "clone", "-q", url, str(clone)], env=quiet, capture_output=True).returncode
    signed = url.replace("://", f"://x-access-token:{TOKEN}@")
    subprocess.run(["git", "clone", "-q", "--branch", "work", signed, str(clone)], env=quiet, check=True)
    subprocess.run(["git", "-C", str(clone), "push", "-q", "origin", "work:copy"], env=quiet, check=True)
    assert repo.sha("copy") == repo.sha("work")


def test_a_wrong_answer_of_the_stand_in_is_found() -> None:
    description = Description()
    found = description.match("GET", "/repos/acme/kernels/git/ref/heads/a/b")
    assert found is not None
    operation, arguments = found
    assert arguments["ref"] == "heads/a/b"
    assert description.answer_errors(operation, 200, {"ref": "refs/heads/a"})
    assert description.answer_errors(operation, 299, {}) == ["status 299 is not described"]
