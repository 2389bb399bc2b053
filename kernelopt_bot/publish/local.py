"""Publication into a local repository: a branch with one commit, and the pull request's words as files.

The user's work tree, index and configuration are never touched: the commit is made from objects, with its own index.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from git import Git
from git.exc import GitCommandError

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.files import check_files, check_removed, kernels_named, not_ours
from kernelopt_bot.publish.key import key_of, trailers_of, with_trailers
from kernelopt_bot.publish.publication import Publication, Published
from kernelopt_bot.report.write import write_whole
from kernelopt_bot.targets.git import environment, open_repository

_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "KernelOPT bot"), ("EMAIL", "kernelopt@bot.invalid"))
}


class LocalForge:
    """Implements `Forge` for the repository at `repository`; title and body go to `output`."""

    def __init__(self, repository: Path, output: Path) -> None:
        """Raises InputError if there is no git repository with a work tree, or if it belongs to another user."""
        self._output = output
        self._root = open_repository(repository).root

    def can_write(self) -> str:
        """'' if branches can be made here, else the reason."""
        folder = self._root / self._git("rev-parse", "--git-common-dir")
        return "" if os.access(folder, os.W_OK) else f"{folder} is not writable"

    def publish(self, publication: Publication) -> Published:
        """Idempotent: the same key twice gives `unchanged`. Raises UserError; then no branch has changed."""
        check_files(publication.files)
        check_removed(publication.removed, publication.artifact_root)
        words = (
            write_whole(self._output / "pull-request-title.txt", f"{publication.title}\n".encode()),
            write_whole(self._output / "pull-request.md", publication.body.encode()),
        )
        try:
            published = self._commit(publication)
        except GitCommandError as e:
            said = str(e.stderr).strip().removeprefix("stderr:").strip(" '\n")[:500]
            raise UserError(
                f"git failed: {said}", where=publication.branch, fix="mend the repository and run again"
            ) from None
        return replace(published, files=tuple(str(w) for w in words))

    def _commit(self, p: Publication) -> Published:
        self._git("check-ref-format", "--branch", p.branch)
        ref = f"refs/heads/{p.branch}"
        tip = self._git("for-each-ref", "--format=%(objectname)", ref)
        if tip:
            said = trailers_of(self._git("show", "-s", "--format=%B", tip))
            if not said.key or said.tree != self._git("rev-parse", f"{tip}^{{tree}}"):
                reason = f"branch {p.branch} has commits that are not ours; it was left alone"
                return Published("reported", p.branch, tip, reason=reason)
            if said.key == key_of(p.commit_message):
                return Published("unchanged", p.branch, tip)
        if f"branch {ref}" in self._git("worktree", "list", "--porcelain").splitlines():
            raise UserError("The branch is checked out.", where=p.branch, fix="check out another branch and run again")
        base = self._git("rev-parse", "--verify", "--end-of-options", f"{p.base_sha}^{{commit}}")
        tree = self._tree(p, base)
        if tree == self._git("rev-parse", f"{base}^{{tree}}"):
            return Published("unchanged", p.branch, tip or base)
        parents = [base] if not tip else [tip] if self._is_ancestor(base, tip) else [tip, base]
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as message:
            message.write(with_trailers(p.commit_message, tree=tree, base_ref=p.base_ref))
            message.flush()
            commit = self._git(
                "commit-tree", tree, *(x for parent in parents for x in ("-p", parent)), "-F", message.name
            )
        self._git("update-ref", "-m", "kernelopt: publish", ref, commit, tip or "0" * len(commit))
        return Published("updated" if tip else "created", p.branch, commit)

    def _tree(self, p: Publication, base: str) -> str:
        with tempfile.TemporaryDirectory(prefix="kernelopt-index-") as scratch:
            index = str(Path(scratch) / "index")
            self._git("read-tree", base, index=index)
            for path in sorted({*self._stale(p, base), *p.removed} - p.files.keys()):
                self._git("update-index", "--force-remove", "--", path, index=index)
            for path, content in sorted(p.files.items()):
                held = Path(scratch) / "content"
                held.write_bytes(content)
                blob = self._git("hash-object", "-w", "--no-filters", "--", str(held))
                # Without --replace: a file of the user's where a folder must go is an error, not a victim.
                self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", index=index)
            return self._git("write-tree", index=index)

    def _stale(self, p: Publication, base: str) -> set[str]:
        """The kernels that a manifest of `base` names, of the artifacts that are written anew. Raises UserError."""
        found: set[str] = set()
        for folder in p.replaced:
            artifact = folder.rpartition("/")[0]
            there = self._git("ls-tree", "-r", "-z", "--name-only", base, "--", artifact).split("\0")
            if f"{artifact}/manifest.json" in there:
                named = kernels_named(self._git("show", f"{base}:{artifact}/manifest.json"), artifact)
                found |= named.intersection(there)
            elif any(there):
                raise not_ours(artifact)
        return found

    def _is_ancestor(self, base: str, tip: str) -> bool:
        try:
            self._git("merge-base", "--is-ancestor", base, tip)
        except GitCommandError as e:
            if e.status == 1:
                return False
            raise
        return True

    def _git(self, *command: str, index: str = "") -> str:
        """Standard output of one git command that sees nothing of this process's environment."""
        given = environment() | _IDENTITY | ({"GIT_INDEX_FILE": index} if index else {})
        pairs = [f"{k}={v}" for k, v in given.items()]
        return str(Git(str(self._root)).execute(["env", "-i", *pairs, "git", "--no-pager", *command]))
