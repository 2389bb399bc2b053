"""Repositories and the Git-data interface, by git itself."""

from __future__ import annotations

import base64
import tempfile
from typing import Any

from tests.github_stand_in.hub import Answer, Arguments, GitFailed, Hub, Repo, invalid, not_found

Body = dict[str, Any]


def get_repository(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    e = hub.description.example("repos/get")
    for key in ("parent", "source", "template_repository"):
        e.pop(key, None)
    for key, value in e.items():
        if isinstance(value, str):
            e[key] = value.replace("https://api.github.com/repos/octocat/Hello-World", hub.api(repo))
    e |= {
        "name": repo.name,
        "full_name": repo.full_name,
        "url": hub.api(repo),
        "html_url": hub.page(repo),
        "clone_url": f"{hub.page(repo)}.git",
        "default_branch": "main",
        "language": None,
        "archived": repo.archived,
        "permissions": {"admin": False, "maintain": False, "push": repo.push_shown, "triage": True, "pull": True},
    }
    e["owner"]["login"] = repo.owner
    return 200, e


def create_blob(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    content = base64.b64decode(b["content"]) if b.get("encoding") == "base64" else b["content"].encode()
    sha = repo.git("hash-object", "-w", "--stdin", stdin=content)
    return 201, {"sha": sha, "url": hub.api(repo, f"/git/blobs/{sha}")}


def get_blob(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    if not repo.sha(f"{a['file_sha']}^{{blob}}"):
        return not_found()
    content = repo.raw("cat-file", "blob", a["file_sha"])
    return 200, {
        "sha": a["file_sha"],
        "node_id": "B_1",
        "size": len(content),
        "url": hub.api(repo, f"/git/blobs/{a['file_sha']}"),
        "content": base64.b64encode(content).decode(),
        "encoding": "base64",
    }


def create_tree(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    base = b.get("base_tree", "")
    if base and not repo.sha(f"{base}^{{tree}}"):
        return invalid("base_tree is not a valid tree oid")
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": f"{scratch}/index"}
        if base:
            repo.git("read-tree", base, **index)
        try:
            for entry in b["tree"]:
                if "sha" in entry and entry["sha"] is None:
                    gone = f"0 {'0' * 40}\t{entry['path']}\n".encode()
                    repo.git("update-index", "--index-info", stdin=gone, **index)
                    continue
                sha = entry.get("sha") or repo.git("hash-object", "-w", "--stdin", stdin=entry["content"].encode())
                repo.git(
                    "update-index",
                    "--add",
                    "--replace",
                    "--cacheinfo",
                    f"{entry['mode']},{sha},{entry['path']}",
                    **index,
                )
            tree = repo.git("write-tree", **index)
        except GitFailed as e:
            return invalid(str(e))
    return 201, _tree(hub, repo, tree)


def get_tree(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    tree = repo.sha(f"{a['tree_sha']}^{{tree}}")
    return (200, _tree(hub, repo, tree, recursive="recursive" in q)) if tree else not_found()


def create_commit(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    parents = [x for parent in b.get("parents", ()) for x in ("-p", parent)]
    try:
        sha = repo.git("commit-tree", b["tree"], *parents, "-F", "-", stdin=b["message"].encode())
    except GitFailed as e:
        return invalid(str(e))
    return 201, _commit(hub, repo, sha)


def get_commit(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    return (200, _commit(hub, repo, a["commit_sha"])) if repo.sha(f"{a['commit_sha']}^{{commit}}") else not_found()


def get_ref(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    return (200, _ref(hub, repo, f"refs/{a['ref']}")) if repo.sha(f"refs/{a['ref']}") else not_found()


def matching_refs(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    found = repo.git("for-each-ref", "--format=%(refname)", f"refs/{a['ref']}*").split()
    return 200, [_ref(hub, repo, name) for name in found]


def create_ref(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    if repo.sha(b["ref"]):
        return invalid("Reference already exists")
    return _moved(hub, repo, b["ref"], b["sha"], 201)


def update_ref(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    ref = f"refs/{a['ref']}"
    old = repo.sha(ref)
    if not old:
        return invalid("Reference does not exist")
    if not b.get("force") and repo.git("rev-list", "--count", f"{b['sha']}..{old}") != "0":
        return invalid("Update is not a fast forward")
    return _moved(hub, repo, ref, b["sha"], 200)


def delete_ref(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    ref = f"refs/{a['ref']}"
    if not repo.sha(ref):
        return invalid("Reference does not exist")
    repo.git("update-ref", "-d", ref)
    return 204, None


def compare(hub: Hub, repo: Repo, a: Arguments, q: Arguments, b: Body) -> Answer:
    base, head = a["base"], a["head"]
    # A whole SHA is a name to git whether there is such a commit or not.
    if not (repo.sha(f"{base}^{{commit}}") and repo.sha(f"{head}^{{commit}}")):
        return not_found()
    behind, ahead = map(int, repo.git("rev-list", "--left-right", "--count", f"{base}...{head}").split())
    e = hub.description.example("repos/compare-commits")
    status = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
    new = repo.git("rev-list", "--reverse", f"{base}..{head}").split()
    example = e["commits"][0]
    commits = [{**example, "sha": sha, "parents": _commit(hub, repo, sha)["parents"],
                "commit": example["commit"] | {"message": _commit(hub, repo, sha)["message"]}} for sha in new]
    e |= {"status": status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead, "commits": commits,
          "files": _changed(e["files"][0], repo, base, head)}
    return 200, e


def _changed(example: Body, repo: Repo, base: str, head: str) -> list[Body]:
    words = {"A": "added", "M": "modified", "D": "removed", "T": "changed"}
    found = []
    for line in repo.git("diff", "--raw", "--no-renames", "--abbrev=40", f"{base}...{head}").splitlines():
        facts, _, path = line.partition("\t")
        _, _, old, new, letter = facts.split()
        found.append(example | {"filename": path, "sha": new if letter != "D" else old, "status": words[letter]})
    return found


def _moved(hub: Hub, repo: Repo, ref: str, sha: str, status: int) -> Answer:
    try:
        repo.git("update-ref", ref, repo.git("rev-parse", "--verify", f"{sha}^{{commit}}"))
    except GitFailed:
        return invalid("Object does not exist")
    return status, _ref(hub, repo, ref)


def _ref(hub: Hub, repo: Repo, ref: str) -> Body:
    sha = repo.sha(ref)
    return {
        "ref": ref,
        "node_id": "R_1",
        "url": hub.api(repo, f"/git/{ref}"),
        "object": {"type": "commit", "sha": sha, "url": hub.api(repo, f"/git/commits/{sha}")},
    }


def _tree(hub: Hub, repo: Repo, sha: str, *, recursive: bool = False) -> Body:
    entries = []
    for line in repo.git("ls-tree", "-l", *(("-r", "-t") if recursive else ()), sha).splitlines():
        left, _, path = line.partition("\t")
        mode, kind, blob, size = left.split()
        entry = {"path": path, "mode": mode, "type": kind, "sha": blob, "url": hub.api(repo, f"/git/{kind}s/{blob}")}
        entries.append(entry | ({"size": int(size)} if kind == "blob" else {}))
    return {"sha": sha, "url": hub.api(repo, f"/git/trees/{sha}"), "tree": entries, "truncated": False}


def _commit(hub: Hub, repo: Repo, sha: str) -> Body:
    fields = repo.git("show", "-s", "--format=%T%n%P%n%an%n%ae%n%aI%n%cn%n%ce%n%cI", sha).split("\n")
    tree, parents = fields[0], fields[1].split()
    author, committer = (dict(zip(("name", "email", "date"), fields[i : i + 3], strict=True)) for i in (2, 5))
    return {
        "sha": sha,
        "node_id": "C_1",
        "url": hub.api(repo, f"/git/commits/{sha}"),
        "html_url": hub.page(repo, f"/commit/{sha}"),
        "author": author,
        "committer": committer,
        "message": repo.git("show", "-s", "--format=%B", sha),
        "tree": {"sha": tree, "url": hub.api(repo, f"/git/trees/{tree}")},
        "parents": [
            {"sha": p, "url": hub.api(repo, f"/git/commits/{p}"), "html_url": hub.page(repo, f"/commit/{p}")}
            for p in parents
        ],
        "verification": {
            "verified": True,
            "reason": "valid",
            "signature": "signed by the host",
            "payload": "commit",
            "verified_at": None,
        },
    }
