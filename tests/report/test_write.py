from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.report.build import build
from kernelopt_bot.report.write import SUMMARY_LIMIT, write, write_summary, write_whole
from kernelopt_bot.search.result import RunResult


def test_writes_report_and_charts(run: RunResult, tmp_path: Path) -> None:
    report = build(run)
    paths = write(report, tmp_path / "deep" / "out")
    assert {p.name for p in paths} == {*report.files, "report.md", "report.json"}
    assert paths[-1].name == "report.json"
    assert json.loads(paths[-1].read_text())["schema"] == 1
    text = (tmp_path / "deep" / "out" / "report.md").read_text()
    assert 'src="transformer_block-gain-light.svg"' in text
    assert {p.name for p in (tmp_path / "deep" / "out").iterdir()} == {p.name for p in paths}


def test_writing_twice_gives_the_same_bytes(run: RunResult, tmp_path: Path) -> None:
    one, two = (write(build(run), tmp_path / name) for name in ("one", "two"))
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="can't be written") as e:
        write_whole(tmp_path / "out" / "report.md", b"x")
    assert e.value.exit_code == 2
    assert e.value.fix
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_said_to_be_one(run: RunResult) -> None:
    with pytest.raises(Unavailable, match="disk is full"):
        write_summary(build(run), Path("/dev/full"))


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for the moment at which the disk fills up: no test can fill one."""
    (tmp_path / "report.md").write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="disk is full"):
        write_whole(tmp_path / "report.md", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]
    assert (tmp_path / "report.md").read_text() == "old"


def test_the_summary_is_appended_and_bounded(run: RunResult, tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    summary.write_text("from an earlier step")
    assert write_summary(build(run), summary)
    assert summary.read_text().startswith("from an earlier step\n# KernelOPT: 1 of 3 targets faster")
    summary.write_text("é" * (SUMMARY_LIMIT // 2 - 10_000))
    assert write_summary(build(run), summary)
    assert summary.stat().st_size <= SUMMARY_LIMIT
    summary.write_text("x" * (SUMMARY_LIMIT - 100))
    assert not write_summary(build(run), summary)
    assert summary.stat().st_size == SUMMARY_LIMIT - 100
