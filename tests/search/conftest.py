"""A small model on the CPU and the session of a search for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.agents.party import Gather, nobody
from kernelopt_bot.config import Config
from kernelopt_bot.sandbox.bubblewrap import BubblewrapJail
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.search.deadline import NEVER
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.run import Device
from kernelopt_bot.search.session import Session
from kernelopt_bot.targets.target import Target

MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(torch.relu(x) * 2.0, dim=-1)


def get_inputs():
    return [torch.randn(4, 40)]
"""
TARGET = Target("net", "net.py", "Model", "get_inputs", closure=("net.py",))


def begun(root: Path, folder: Path, config: Config, target: Target, *, memory: Memory | None = None,
          gather: Gather = nobody, jail: Jail | None = None) -> Session:
    """A session on the CPU, in the strictest jail where none is given. Skips where the jail does not work."""
    jail = jail or BubblewrapJail()
    if missing := jail.missing():
        pytest.skip(missing[0])
    return Device(config, root, folder, folder / "scratch", jail, sys.executable, "cpu", "cpu", Silent(), memory,
                  NEVER, 60.0, gather).begin(target)


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., Session]:
    """Makes the session of a search for `TARGET`. Skips where bubblewrap does not work."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "net.py").write_text(MODEL)

    def make(**given: object) -> Session:
        config = Config.model_validate({"version": 1, "device": "cpu", **given})
        return begun(root, tmp_path / "run", config, TARGET)

    return make
