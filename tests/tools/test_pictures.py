from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.report.machine import machine_data
from kernelopt_bot.report.restore import restore

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "benchmarks" / "results").glob("optimize_*.json"))


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    # Tools are scripts: they import each other from their own folder.
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    return runpy.run_path(str(ROOT / "tools" / name))


@pytest.mark.parametrize("record", RECORDS, ids=lambda p: p.stem)
def test_a_record_gives_back_the_result_that_it_was_made_from(record: Path) -> None:
    """Also one that an earlier release wrote; what only a captured program tells is not in it."""
    data = json.loads(record.read_text())["report"]
    again = machine_data(restore(json.dumps(data).encode()))
    for key in ("baselines", "levers", "noise", "rejected", "secret", "environment", "command"):
        assert again[key] == data[key], key
    for old, new in zip(data["targets"], again["targets"], strict=True):
        assert all(new[k] == old[k] for k in ("name", "faster", "headline", "stitched", "covered", "artifact", "error"))


def test_every_picture_is_committed_small_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "what-you-see.md").read_text()
    for name in load("pictures.py", monkeypatch)["PICTURES"]:
        assert 0 < (ROOT / "docs" / "pictures" / f"{name}.png").stat().st_size < 150_000
        assert f"(pictures/{name}.png)" in page
