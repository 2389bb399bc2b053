from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelopt_bot.sandbox.worker.hello import gpu_uuid, hello, nvidia_smi


def test_says_what_it_runs_on() -> None:
    found = hello(None, {})
    assert found["torch"] == torch.__version__ and found["cpu"] and found["threads"] >= 1
    assert (found["gpu"] is None) == (not torch.cuda.is_available())


def test_uuid_spelling() -> None:
    assert gpu_uuid(SimpleNamespace(uuid="12-34")) == "GPU-12-34"
    assert gpu_uuid(SimpleNamespace(uuid="GPU-12")) == "GPU-12"
    assert gpu_uuid(SimpleNamespace()) == ""


def test_nvidia_smi_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_smi(["clocks.sm"]) == {}
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '1980, 601.5'\n")
    tool.chmod(0o755)
    assert nvidia_smi(["clocks.sm", "power.draw"]) == {"clocks.sm": "1980", "power.draw": "601.5"}
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert nvidia_smi(["clocks.sm"]) == {}
