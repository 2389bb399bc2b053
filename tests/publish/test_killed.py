"""A publication that dies at any request is taken up by the next run, and ends as if it had never died."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.publication import Publication, Withdrawal
from tests.github_stand_in import TOKEN, Hub, Repo
from tests.publish.conftest import KERNEL, publication

pytestmark = pytest.mark.slow

BRANCH = "kernelopt-pr-7"
Act = Callable[[GitHubForge, Repo], Any]


def wanted(repo: Repo, key: str = "2" * 64, content: bytes = b"def norm(): ...\n") -> Publication:
    p = publication(repo.sha("faster-models"), key, content)
    return replace(p, source=7, author="kim", labels=("kernelopt", "perf"), body=f"about {key[0]}")


def opens(forge: GitHubForge, repo: Repo) -> Any:
    return forge.publish(wanted(repo))


def closes(forge: GitHubForge, repo: Repo) -> Any:
    return forge.withdraw(Withdrawal(BRANCH, "gain gone", "1.00x now"))


def nothing(forge: GitHubForge, repo: Repo) -> None:
    """No pull request yet."""


def earlier(forge: GitHubForge, repo: Repo) -> None:
    """A pull request with other content, whose base has moved on."""
    forge.publish(wanted(repo, "1" * 64, b"def old(): ...\n"))
    repo.commit("faster-models", {"models/block.py": "x = 3\n"})


def conflicting(forge: GitHubForge, repo: Repo) -> None:
    """A pull request with other content; the base has a file of its own in the same place."""
    forge.publish(wanted(repo, "1" * 64, b"def old(): ...\n"))
    repo.commit("faster-models", {KERNEL: "def theirs(): ...\n"})


def same(forge: GitHubForge, repo: Repo) -> None:
    """A pull request with the same content."""
    opens(forge, repo)


CASES: dict[str, tuple[Act, Act, bool]] = {
    "opened": (nothing, opens, True),
    "updated": (earlier, opens, False),
    "anew": (conflicting, opens, False),
    "closed": (same, closes, False),
}


def client(hub: Hub) -> GitHubForge:
    return GitHubForge("acme/killed", TOKEN, base_url=hub.url, attempts=1, seconds_between_writes=None)


def made(hub: Hub) -> Repo:
    files = {"models/block.py": "x = 1\n", "CODEOWNERS": "*.py @sam\n/kernelopt_kernels/ @lee @acme/gpu\n"}
    repo = hub.create_repo("acme/killed", files)
    repo.permissions |= dict.fromkeys(("kim", "lee", "sam"), "write")
    repo.commit("faster-models", {"models/block.py": "x = 2\n"})
    return repo


def restored(hub: Hub, kept: Repo) -> Repo:
    """The repository as it was when `kept` was made."""
    repo = replace(copy.deepcopy(kept), path=hub.root / "acme" / "killed.git")
    shutil.rmtree(repo.path)
    shutil.copytree(kept.path, repo.path)
    hub.repos["acme/killed"] = repo
    return repo


def kept_as_it_is(repo: Repo, place: Path) -> Repo:
    shutil.copytree(repo.path, place)
    return replace(copy.deepcopy(repo), path=place)


def state(repo: Repo) -> dict[str, Any]:
    """What people see, without names that differ from run to run."""
    return {
        "pulls": [
            (n, p["state"], p["title"], p["body"], p["base"]["ref"], repo.issue_labels.get(n), repo.requested.get(n))
            for n, p in repo.pulls.items()
        ],
        "files": repo.git("ls-tree", "-r", BRANCH),
        "commits": repo.git("rev-list", "--count", BRANCH),
        "comments": [c["body"].partition("<!--")[0] for c in repo.comments.values()],
    }


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_dies_anywhere_is_taken_up(hub: Hub, case: str, tmp_path: Path) -> None:
    before, act, thorough = CASES[case]
    repo = made(hub)
    before(client(hub), repo)
    kept = kept_as_it_is(repo, tmp_path / "kept")
    hub.log.clear()
    act(client(hub), repo)
    whole, log = state(repo), [name for name, _ in hub.log]
    writes = [i for i, name in enumerate(log) if any(w in name for w in ("create", "update", "add-", "request-"))]
    assert len(writes) >= 2
    # To die before a request leaves what to die after the one before it does.
    deaths = [(i, False) for i in range(len(log))] + [(writes[-1], True)] if thorough else [(i, True) for i in writes]
    for i, after in deaths:
        repo = restored(hub, kept)
        hub.die_at(i, after=after)
        with pytest.raises(UserError, match="can't be reached"):
            act(client(hub), repo)
        hub.die_at(-1, after=False)
        act(client(hub), repo)
        assert state(repo) == whole, f"died at {log[i]}, {'after' if after else 'before'} its work"
        assert sum(p["state"] == "open" for p in repo.pulls.values()) == (case != "closed")
