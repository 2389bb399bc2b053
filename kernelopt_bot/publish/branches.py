"""Our branches on GitHub: read, and moved forward by the Git-data interface. Nothing is rewritten or deleted."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.files import kernels_named, not_ours
from kernelopt_bot.publish.github_errors import Answered, Raced
from kernelopt_bot.publish.key import Trailers, trailers_of, with_trailers
from kernelopt_bot.publish.publication import Publication
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.trees import entry_at, tree

# Up to here a text goes into the tree's own request; what is larger, or no text, is a request of its own.
_INLINE_BYTES = 256 << 10
_INLINE_TOTAL = 4 << 20


@dataclass(frozen=True)
class Tip:
    """The last commit of a branch."""

    sha: str
    tree: str
    trailers: Trailers

    @property
    def ours(self) -> bool:
        """Whether the commit says that it holds what it holds: nobody else committed, amended or rebased."""
        return bool(self.trailers.key) and self.trailers.tree == self.tree


class Branches:
    """What a publication needs of a repository's branches. Every method raises UserError."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._trees: dict[str, dict[str, Json]] = {}

    def sha(self, branch: str) -> str:
        """The branch's commit; '' if there is no such branch."""
        # A prefix search: an absent branch is an empty list there, so a 404 stays what it is, a failure.
        refs = self._rest.request("GET", f"git/matching-refs/heads/{quote(branch)}", doing="reading the branch")
        return next((str(r["object"]["sha"]) for r in refs if r["ref"] == f"refs/heads/{branch}"), "")

    def tip(self, branch: str) -> Tip | None:
        sha = self.sha(branch)
        if not sha:
            return None
        commit = self._rest.request("GET", f"git/commits/{sha}", doing="reading the branch")
        return Tip(sha, str(commit["tree"]["sha"]), trailers_of(str(commit["message"])))

    def commit(self, p: Publication, tip: Tip | None) -> str:
        """Puts a commit with the publication's files on the branch and returns its SHA; '' if the base holds them.

        Raises Raced if the branch moved meanwhile.
        """
        base = self._get(f"git/commits/{p.base_sha}")
        base_tree = str(base["tree"]["sha"])
        self._check_folders(base_tree, p)
        new = self._made("git/trees", {"base_tree": base_tree, "tree": self._elements(base_tree, p)})
        if new == base_tree:
            return ""
        message = with_trailers(p.commit_message, tree=new, base_ref=p.base_ref)
        if tip is None:
            parents = [p.base_sha]
        else:
            parents = [tip.sha] if self._holds(tip.sha, p.base_sha) else [tip.sha, p.base_sha]
        sha = self._made("git/commits", {"message": message, "tree": new, "parents": parents})
        self._move(p.branch, tip, sha)
        return sha

    def file(self, commit: str, path: str) -> str | None:
        """The text of a file of at most 1 MiB at `commit`; None if there is none, or it is no text."""
        return self._text(str(self._get(f"git/commits/{commit}")["tree"]["sha"]), path)

    def _text(self, tree: str, path: str) -> str | None:
        entry = self._entry(tree, path)
        if entry is None or entry["type"] != "blob" or entry.get("size", 0) > 1 << 20:
            return None
        blob = self._get(f"git/blobs/{entry['sha']}")
        try:
            return base64.b64decode(str(blob["content"])).decode()
        except ValueError:
            return None

    def _move(self, branch: str, tip: Tip | None, sha: str) -> None:
        doing = "moving the branch"
        try:
            if tip is None:
                new = {"ref": f"refs/heads/{branch}", "sha": sha}
                self._rest.request("POST", "git/refs", new, find=lambda: self.sha(branch) == sha or None, doing=doing)
            else:
                forward = {"sha": sha, "force": False}
                self._rest.request("PATCH", f"git/refs/heads/{quote(branch)}", forward, doing=doing)
        except Answered as e:
            if e.status in (409, 422) and self.sha(branch) != (tip.sha if tip is not None else ""):
                fix = "somebody pushed to our branch at the same time: run again"
                raise Raced(e.what, where=branch, fix=fix) from None
            raise

    def _elements(self, base_tree: str, p: Publication) -> list[Json]:
        gone: list[Json] = [
            {"path": path, "mode": "100644", "type": "blob", "sha": None}
            for path in sorted({*self._stale(base_tree, p), *p.removed})
        ]
        room = _INLINE_TOTAL
        for path, content in sorted(p.files.items()):
            text = _decoded(content) if len(content) <= min(room, _INLINE_BYTES) else None
            element: Json = {"path": path, "mode": "100644", "type": "blob"}
            if text is None:
                encoded = base64.b64encode(content).decode()
                element["sha"] = self._made("git/blobs", {"content": encoded, "encoding": "base64"})
            else:
                room -= len(content)
                element["content"] = text
            gone.append(element)
        return gone

    def _check_folders(self, tree: str, p: Publication) -> None:
        """GitHub would put our folder in the place of a user's file or link of that name: refuse."""
        for folder in sorted({str(parent) for path in p.files for parent in PurePosixPath(path).parents} - {"."}):
            entry = self._entry(tree, folder)
            if entry is not None and entry["type"] != "tree":
                raise UserError(
                    "A file stands where a folder of the artifact must go.",
                    where=folder,
                    fix="rename it, or choose another `artifact.root` in the configuration",
                )
        for folder in sorted({folder.rpartition("/")[0] for folder in p.replaced} - {""}):
            entry = self._entry(tree, folder)
            if entry is not None and "manifest.json" not in self._tree(str(entry["sha"])):
                raise not_ours(folder)

    def _stale(self, tree: str, p: Publication) -> list[str]:
        """The kernels that the base's manifest names in our generated folders and the publication doesn't have; what
        else lies there somebody put there."""
        found: list[str] = []
        for folder in p.replaced:
            entry = self._entry(tree, folder)
            there = self._tree(str(entry["sha"])) if entry is not None and entry["type"] == "tree" else {}
            if left := {f"{folder}/{name}" for name, e in there.items() if e["type"] == "blob"} - p.files.keys():
                artifact = folder.rpartition("/")[0]
                found += left & kernels_named(self._text(tree, f"{artifact}/manifest.json") or "", artifact)
        return sorted(found)

    def _entry(self, commit: str, path: str) -> Json | None:
        """`commit` may be a tree's SHA."""
        return entry_at(self._rest, commit, path, self._trees)

    def _tree(self, sha: str) -> dict[str, Json]:
        if sha not in self._trees:
            self._trees[sha] = tree(self._rest, sha)
        return self._trees[sha]

    def _holds(self, tip: str, base: str) -> bool:
        return self._get(f"compare/{base}...{tip}")["status"] in ("ahead", "identical")

    def _get(self, path: str) -> Any:
        return self._rest.request("GET", path, doing="reading the repository")

    def _made(self, path: str, body: Json) -> str:
        """The SHA of a new object; the same content has the same name, or nothing refers to it."""
        return str(self._rest.request("POST", path, body, repeatable=True, doing="committing")["sha"])


def _decoded(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
