"""A repository on the GitHub stand-in, cloned over HTTP, a pull request that changes a model, and a real payload."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.sandbox.worker_environment import HOST_SETTINGS
from tests.github_stand_in import TOKEN, Hub, Repo, start

ROOT = Path(__file__).parents[2]
PAYLOADS = ROOT / "tests/npm/node_modules/@octokit/webhooks-examples/api.github.com/index.json"

MODEL = """\
import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.{activation}(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width) for _ in range(blocks)])

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(1, 4, 32)]


def get_init_inputs():
    return [32, {blocks}]
"""
CONFIG = """\
version: 1
levers: [launch]
gates: { min_gain: 1.01, seeds: 1, inits: 1 }
"""


@dataclass(frozen=True)
class Case:
    hub: Hub
    repo: Repo
    clone: Path
    base: str
    head: str
    output: Path

    def run(self, *arguments: str, token: str = TOKEN, payload: dict[str, Any] | None = None,
            timeout: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
        """`kernelopt run` as a runner starts it, in the clone."""
        event = self.output.parent / "event.json"
        event.write_text(json.dumps(payload if payload is not None else self.payload()))
        values = {
            "PATH": os.environ["PATH"], "HOME": str(self.output.parent), "PYTHONPATH": str(ROOT), "CI": "true",
            **{name: os.environ[name] for name in HOST_SETTINGS},
            "GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(event), "GITHUB_API_URL": self.hub.url,
            "GITHUB_REPOSITORY": self.repo.full_name, "GITHUB_TOKEN": token,
            "GITHUB_OUTPUT": str(self.output.parent / "outputs"),
            "GITHUB_STEP_SUMMARY": str(self.output.parent / "summary.md"),
        } | environment
        command = [sys.executable, "-m", "kernelopt_bot", "run", "--output", str(self.output), *arguments]
        return subprocess.run(command, cwd=self.clone, env=values, capture_output=True, text=True, timeout=timeout,
                              check=False)

    def payload(self) -> dict[str, Any]:
        """GitHub's own example of a synchronised pull request, about this repository."""
        events = json.loads(PAYLOADS.read_text())
        examples = next(e["examples"] for e in events if e["name"] == "pull_request")
        payload = copy.deepcopy(next(e for e in examples if e["action"] == "synchronize"))
        pull = payload["pull_request"]
        payload["repository"]["full_name"] = self.repo.full_name
        pull["draft"], pull["state"], pull["user"]["type"] = False, "open", "User"
        pull["head"] |= {"ref": "faster-models", "sha": self.head}
        pull["base"] |= {"ref": "main", "sha": self.base}
        for side in ("head", "base"):
            pull[side]["repo"] |= {"id": payload["repository"]["id"], "full_name": self.repo.full_name}
        return payload


@pytest.fixture
def case(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A parameter is added to the configuration. The model has six blocks, so that C++ has calls to save; with a
    parameter one, which is compiled sooner."""
    more = getattr(request, "param", "")
    blocks = 1 if more else 6
    hub = start(tmp_path / "hub")
    repo = hub.create_repo("acme/models", {
        "net/stack.py": MODEL.format(activation="silu", blocks=blocks),
        "net/untouched.py": MODEL.format(activation="relu", blocks=blocks), ".kernelopt.yml": CONFIG + more})
    repo.commit("faster-models", {"net/stack.py": MODEL.format(activation="gelu", blocks=blocks)})
    url = hub.url.replace("://", f"://x-access-token:{TOKEN}@") + "/acme/models.git"
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--branch", "faster-models", url, str(clone)], check=True)
    yield Case(hub, repo, clone, repo.sha("main"), repo.sha("faster-models"), tmp_path / "out")
    hub.stop()
    assert hub.violations == []
