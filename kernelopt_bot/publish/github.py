"""Publication on GitHub by its REST interface. The only importer of PyGithub."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import requests
from github import Auth, Github, GithubException, InputGitTreeElement
from github.GitCommit import GitCommit
from github.GitTree import GitTree
from github.PullRequest import PullRequest
from github.Repository import Repository

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.files import check_files
from kernelopt_bot.publish.github_errors import Denied, explained
from kernelopt_bot.publish.key import key_of
from kernelopt_bot.publish.publication import Publication, Published

_DEFAULT_API = "https://api.github.com"


class GitHubForge:
    """Implements `Forge` for `repository` (`owner/name`).

    Commits are made by the Git-data interface, so GitHub signs them; branches only ever move forward. Keyword arguments
    go to PyGithub's client. Nothing is asked of the network before the first call of a method.
    """

    def __init__(self, repository: str, token: str, *, base_url: str = "", **client: Any) -> None:
        self._name = repository
        self._secret = token
        self._base_url = base_url or os.environ.get("GITHUB_API_URL", "") or _DEFAULT_API
        self._client = Github(
            auth=Auth.Token(token) if token else None, base_url=self._base_url, user_agent="kernelopt-bot", **client
        )
        self._found: Repository | None = None
        self._trees: dict[str, GitTree] = {}

    def __repr__(self) -> str:
        return f"GitHubForge({self._name!r})"

    def can_write(self) -> str:
        """'' if publishing is permitted, else the reason. Raises UserError."""
        if not self._secret:
            return "there is no token; give the job `GITHUB_TOKEN` with `contents: write` and `pull-requests: write`"
        with self._explaining("reading the repository"):
            repo = self._repository()
            if repo.archived:
                return f"{self._name} is archived"
            # For the tokens of apps, GITHUB_TOKEN among them, GitHub doesn't fill this in: only trying tells.
            if (repo.permissions is not None and repo.permissions.push) or self._secret.startswith("ghs_"):
                return ""
            return f"the token may not write to {self._name}"

    def publish(self, publication: Publication) -> Published:
        """Idempotent: the same key twice gives `unchanged`; without permission `reported`, with the reason.

        Raises UserError; then at most objects that no branch refers to, or a branch without its pull request, are left,
        and the next run takes them up.
        """
        check_files(publication.files)
        reason = self.can_write()
        if reason:
            return Published("reported", reason=reason)
        try:
            return self._publish(publication)
        except Denied as e:
            return Published("reported", publication.branch, url=self._compare_link(publication), reason=str(e))

    def _publish(self, p: Publication) -> Published:
        tip = self._tip(p.branch)
        pulls = self._pulls(p)
        open_pull = next((x for x in pulls if x.state == "open"), None)
        key = key_of(p.commit_message)
        tip_key = key_of(tip.message) if tip is not None else ""
        if tip is not None and not tip_key:
            why = f"branch {p.branch} has commits that are not ours; it was left alone"
            return Published(
                "reported",
                p.branch,
                tip.sha,
                open_pull.number if open_pull else None,
                open_pull.html_url if open_pull else "",
                why,
            )
        if tip is not None and tip_key == key:
            if pulls:
                last = open_pull or pulls[0]
                return Published("unchanged", p.branch, tip.sha, last.number, last.html_url)
            return self._opened(p, tip.sha)
        head = self._commit(p, tip)
        if head is None:
            return Published("unchanged", p.branch, tip.sha if tip is not None else p.base_sha)
        if open_pull is None:
            return self._opened(p, head)
        with self._explaining("updating the pull request"):
            open_pull.edit(title=p.title, body=p.body)
        self._label(open_pull, p.labels)
        return Published("updated", p.branch, head, open_pull.number, open_pull.html_url, files=tuple(sorted(p.files)))

    def _opened(self, p: Publication, head: str) -> Published:
        with self._explaining("opening the pull request"):
            try:
                pull = self._repository().create_pull(
                    base=p.base_ref, head=p.branch, title=p.title, body=p.body, draft=p.draft
                )
            except GithubException as e:
                # An answer may get lost after the pull request was made: look before anybody tries again.
                found = (
                    [x for x in self._pulls(p) if x.state == "open"] if e.status in (422, 500, 502, 503, 504) else []
                )
                if not found:
                    raise
                pull = found[0]
        self._label(pull, p.labels)
        return Published("created", p.branch, head, pull.number, pull.html_url, files=tuple(sorted(p.files)))

    def _commit(self, p: Publication, tip: GitCommit | None) -> str | None:
        """The new tip's SHA; None if the base holds exactly these files already."""
        repo = self._repository()
        with self._explaining("committing"):
            base = repo.get_git_commit(p.base_sha)
            self._check_folders(base.tree, p)
            elements = [InputGitTreeElement(path, "100644", "blob", sha=None) for path in self._stale(base.tree, p)]
            for path, content in sorted(p.files.items()):
                blob = repo.create_git_blob(base64.b64encode(content).decode(), "base64")
                elements.append(InputGitTreeElement(path, "100644", "blob", sha=blob.sha))
            tree = repo.create_git_tree(elements, base.tree)
            if tree.sha == base.tree.sha:
                return None
            parents = [base] if tip is None else [tip] if self._holds(tip, base) else [tip, base]
            commit = repo.create_git_commit(p.commit_message, tree, parents)
            if tip is None:
                repo.create_git_ref(f"refs/heads/{p.branch}", commit.sha)
            else:
                repo.get_git_ref(f"heads/{p.branch}").edit(commit.sha, force=False)
        return commit.sha

    def _check_folders(self, tree: GitTree, p: Publication) -> None:
        """GitHub would put our folder in the place of a user's file or link of that name: refuse. Raises UserError."""
        for folder in sorted({str(parent) for path in p.files for parent in PurePosixPath(path).parents} - {"."}):
            at: GitTree | None = tree
            for part in PurePosixPath(folder).parts:
                found = next((e for e in at.tree if e.path == part), None) if at is not None else None
                if found is not None and found.type != "tree":
                    raise UserError(
                        "A file stands where a folder of the artifact must go.",
                        where=folder,
                        fix="rename it, or choose another `artifact.root` in the configuration",
                    )
                at = self._tree(found.sha) if found is not None else None

    def _stale(self, tree: GitTree, p: Publication) -> list[str]:
        """What the base holds in our generated folders and the publication doesn't."""
        found: list[str] = []
        for folder in p.replaced:
            at: GitTree | None = tree
            for part in PurePosixPath(folder).parts:
                entry = (
                    next((e for e in at.tree if e.path == part and e.type == "tree"), None) if at is not None else None
                )
                at = self._tree(entry.sha) if entry is not None else None
            # Generated kernels lie flat: whatever else is in there is not ours to take away.
            found += [f"{folder}/{e.path}" for e in (at.tree if at is not None else ()) if e.type == "blob"]
        return sorted(set(found) - p.files.keys())

    def _tree(self, sha: str) -> GitTree:
        if sha not in self._trees:
            self._trees[sha] = self._repository().get_git_tree(sha)
        return self._trees[sha]

    def _holds(self, tip: GitCommit, base: GitCommit) -> bool:
        return self._repository().compare(base.sha, tip.sha).status in ("ahead", "identical")

    def _tip(self, branch: str) -> GitCommit | None:
        with self._explaining("reading the branch"):
            # A prefix search: an absent branch is an empty list there, so a 404 stays what it is, a failure.
            refs = self._repository().get_git_matching_refs(f"heads/{branch}")
            sha = next((r.object.sha for r in refs if r.ref == f"refs/heads/{branch}"), None)
            return self._repository().get_git_commit(sha) if sha is not None else None

    def _pulls(self, p: Publication) -> list[PullRequest]:
        """Pull requests from our branch to the base, newest first, closed ones too."""
        owner = self._name.partition("/")[0]
        with self._explaining("looking for the pull request"):
            return list(self._repository().get_pulls(state="all", head=f"{owner}:{p.branch}", base=p.base_ref))

    def _label(self, pull: PullRequest, labels: tuple[str, ...]) -> None:
        missing = sorted(set(labels) - {label.name for label in pull.labels})
        if missing:
            with self._explaining("labelling the pull request"):
                # PyGithub posts a bare array, which GitHub's own description doesn't allow any more.
                pull.requester.requestJsonAndCheck("POST", f"{pull.issue_url}/labels", input={"labels": missing})

    def _repository(self) -> Repository:
        if self._found is None:
            self._found = self._client.get_repo(self._name)
        return self._found

    def _compare_link(self, p: Publication) -> str:
        url = self._repository().html_url
        return f"{url}/compare/{quote(p.base_ref, safe='')}...{quote(p.branch, safe='')}?expand=1"

    @contextmanager
    def _explaining(self, doing: str) -> Iterator[None]:
        try:
            yield
        except GithubException as e:
            raise explained(e.status, e.data, doing, self._name, self._secret) from None
        except requests.RequestException as e:
            raise UserError(
                f"GitHub can't be reached while {doing}: {type(e).__name__}.",
                where=self._base_url,
                fix="check GITHUB_API_URL, the proxy and the certificates, then run again",
            ) from None
