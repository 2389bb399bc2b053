"""`kernelopt sweep` on a small repository: what is due, verified, searched and proposed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.sweep import targets_in
from kernelopt_bot.compiler.artifact import Recipe, write_artifact
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.config import load_traced
from tests.targets.conftest import MODEL, Scratch


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two targets; `net` has an artifact that was verified with another torch, one artifact has lost its target."""
    scratch = Scratch(tmp_path / "project")
    for name in ("net", "gone"):
        write_artifact(scratch.root / "kernelopt_kernels" / name, class_name="Model",
                       program=Program(name, "cpu", (), "2.0.0", "3.0.0", "cpu", {}), kernels=[], recipe=Recipe.of({}),
                       environment={"torch": "2.0.0", "triton": "3.0.0", "device": "cpu"},
                       evidence={"speedup": 1.5, "low": 1.4, "high": 1.6, "baseline": "default"})
    scratch.commit({"net.py": MODEL, "sub/other.py": MODEL, ".kernelopt.yml": "device: cpu\nsweep: {targets: 0}\n"})
    return scratch.root


def sweep(project: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    code = main(["sweep", "--root", str(project), "--output", str(out), "--json", *more])
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads((out / "sweep.json").read_text())
    return code, json.loads(printed)


def test_a_dry_run_says_what_would_be_done(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".kernelopt.yml").write_text("device: cpu\n")
    code, data = sweep(project, tmp_path / "out", capsys, "--dry-run")
    assert code == 0
    assert set(data["due"]) == {"kernelopt_kernels/net", "kernelopt_kernels/gone"}
    assert "verified with torch 2.0.0" in data["due"]["kernelopt_kernels/net"]
    assert [s["target"] for s in data["plan"]["searches"]] == ["sub_other"]
    # Committed just now with more than an unknown target is expected to have: nothing more is expected of it.
    assert data["plan"]["left"] == [["net", "searched 0 days ago"]]
    assert data["verified"] == {}


def test_stale_artifacts_are_found_and_named(project: Path, tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    (project / "kernelopt_kernels/net/__init__.py").write_text("import os\n")
    code, data = sweep(project, tmp_path / "out", capsys)
    states = {name: state for name, (state, _) in data["verified"].items()}
    assert states == {"kernelopt_kernels/gone": "not measured", "kernelopt_kernels/net": "modified"}
    assert {p["artifact"]: p["action"] for p in data["proposals"]} == {
        "kernelopt_kernels/gone": "keep", "kernelopt_kernels/net": "report"}
    assert code == 0
    assert {name for name, _ in data["plan"]["left"]} == {"net", "sub_other"}


def test_a_stale_artifact_fails_the_sweep(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--root", str(project), "--output", str(tmp_path / "out")]) == 1
    out = capsys.readouterr().out
    assert "kernelopt_kernels/net: stale: report: verified with torch 2.0.0" in out
    assert "not searched again in this sweep" in out


def test_a_marked_kernel_is_a_target_and_a_marker_that_names_nothing_is_said(
        project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ("import triton\n\n\n# kernelopt: inputs={}\n@triton.jit\ndef scale(x):\n    pass\n\n\n"
            "def launch():\n    pass\n")
    (project / "ops.py").write_text(text.format("launch"))
    (project / "bad.py").write_text(text.format("gone"))
    traced = load_traced(project)
    assert [t.name for t in targets_in(project, traced)] == ["net", "ops_scale", "sub_other"]
    assert "note: bad.py:scale is left out: bad.py has no function gone" in capsys.readouterr().err
