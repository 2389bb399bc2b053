"""`kernelopt doctor` on this machine, and on ones that lack something."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path

import pytest
from rich.console import Console

from kernelopt_bot.cli import doctor, main
from kernelopt_bot.sandbox import machine
from kernelopt_bot.sandbox.machine import Finding, possible


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.main(["doctor", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
def test_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_0123456789abcdefgh")
    code, out, _ = run(capsys, "--json", "--root", str(tmp_path), "--sandbox", "process")
    answer = json.loads(out)
    topics = {f["topic"]: f for f in answer["findings"]}
    assert code == 0 and answer["possible"] is True and answer["schema"] == 1
    assert topics["torch"]["level"] == "ok" and topics["compiler without GPU"]["level"] == "ok"
    assert {"jail docker", "jail bubblewrap", "jail landlock", "jail process", "git", "disk"} <= topics.keys()
    assert topics["github token"]["level"] == "ok" and "ghs_" not in out


def test_an_interpreter_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".kernelopt.yml").write_text("version: 1\nenvironment:\n  python: .venv/bin/python\n")
    code, out, _ = run(capsys, "--root", str(tmp_path))
    assert code == 1
    assert "blocking" in out and "environment.python" in out and "A run is not possible: python." in out


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    python = str(tmp_path / "venv" / "bin" / "python")
    findings, path = machine.interpreter(python)
    levels = {f.topic: f.level for f in findings}
    assert path == python
    assert levels == {"python": "ok", "torch": "blocking", "triton": "missing", "compiler without GPU": "missing"}
    assert "-m pip install torch" in next(f.fix for f in findings if f.topic == "torch")


def test_bad_configuration_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".kernelopt.yml").write_text("version: 1\nsandbx: auto\n")
    code, _, err = run(capsys, "--root", str(tmp_path))
    assert code == 2 and "sandbx" in err


def test_versions() -> None:
    assert machine._version("torch", "2.13.0+cpu", machine.TORCH, "").level == "ok"
    for text in ("2.10.1", "2.14.0.dev20260101", "3.0"):
        old = machine._version("torch", text, machine.TORCH, "")
        assert old.level == "blocking" and "2.11 to 2.13" in old.fix


def test_a_gpu_that_was_asked_for_and_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.graphics("cuda:0")[0].level == "blocking"
    assert machine.graphics("auto")[0].level == "note"


def test_no_jail_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = machine.jails("bubblewrap", sys.executable, "cpu")
    assert {f.topic: f.level for f in findings}["jail bubblewrap"] == "blocking"
    assert not possible(findings)


def test_missing_tools_and_little_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    levels = {f.topic: f.level for f in machine.tools()}
    assert levels == {"git": "blocking", "gcc": "missing", "nsight compute": "note", "compute-sanitizer": "note"}
    assert machine.disk(tmp_path, wanted=1 << 62).level == "blocking"


def test_table_escapes_and_redacts() -> None:
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    doctor.show([Finding("x", "missing", "[red]odd[/] ghp_0123456789abcdef", "do it")], console)
    console.file.close()
    text = console.export_text()
    assert "[red]odd[/] ***" in text and "what to do: do it" in text and "A run is possible." in text
