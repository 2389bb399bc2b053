from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.key import with_key
from kernelopt_bot.publish.publication import Publication
from kernelopt_bot.search.result import RunResult
from tests.github_stand_in import TOKEN, Hub, Repo, start
from tests.report import results

KERNEL = "kernelopt_kernels/block/kernels/norm.py"


@pytest.fixture
def run() -> RunResult:
    return results.whole_run()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A stand-in for GitHub that nobody spoke to in a way that GitHub's description doesn't allow."""
    hub = start(tmp_path / "hub")
    yield hub
    hub.stop()
    assert hub.violations == []


@pytest.fixture
def repo(hub: Hub) -> Repo:
    """`acme/kernels` with a branch `faster-models`, one commit ahead of `main`."""
    repo = hub.create_repo(
        "acme/kernels", {"models/block.py": "x = 1\n", "kernelopt_kernels/other/README.md": "kept\n"}
    )
    repo.commit("faster-models", {"models/block.py": "x = 2\n"})
    return repo


@pytest.fixture
def forge(hub: Hub) -> GitHubForge:
    return client(hub)


def client(hub: Hub, token: str = TOKEN, **more: Any) -> GitHubForge:
    """One attempt a request and no pauses, so that faults are seen and tests are fast."""
    options: dict[str, Any] = {"attempts": 1, "seconds_between_writes": None, "timeout": 10}
    return GitHubForge("acme/kernels", token, base_url=hub.url, **options | more)


def publication(base_sha: str, key: str = "1" * 64, content: bytes = b"def norm(): ...\n") -> Publication:
    return Publication(
        "kernelopt-pr-7",
        "faster-models",
        base_sha,
        "perf: faster",
        "1.2x (95% interval 1.1x to 1.3x)",
        with_key("perf: faster", key),
        {KERNEL: content, "kernelopt_kernels/block/manifest.json": b"{}\n"},
        ("kernelopt",),
    )
