"""Records of the corpus: their shape, and the committed ones' results."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import corpus_record
from kernelopt_bot.cli.main import main

ROOT = Path(__file__).parents[2]
KEYS = {"command", "commit", "gpu", "driver", "versions", "date", "report"}
COMMITTED = sorted((ROOT / "benchmarks" / "results").glob("corpus_*.json"))


def check(made: dict[str, Any]) -> None:
    assert set(made) == KEYS
    assert made["command"].startswith("kernelopt verify --corpus tests/adversarial --json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made["date"])
    assert set(made["versions"]) == {"python", "torch", "triton"} and all(made["versions"].values())
    report = made["report"]
    assert bool(made["gpu"]) == (report["gpu"] is not None)
    assert report["seconds"] > 0 and set(report["precision"]) == {"m", "k", "m_half"}
    for case in report["cases"]:
        assert set(case) == {"name", "about", "expected", "got", "reason", "right", "note", "seconds"}
    assert not re.search(r"GPU-[0-9a-f]{8}-|\"/(home|root|opt|tmp|work)/", json.dumps(made))


@pytest.mark.slow
def test_a_record_of_two_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = ROOT / "tests" / "adversarial"
    for name in ("cases/zeros.toml", "cases/honest_pointwise_block_128.toml", "baselines/relu_1000.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((corpus / name).read_text())
    (tmp_path / ".kernelopt.yml").write_text(
        f"version: 1\nsandbox: process\nenvironment:\n  python: {sys.executable}\n")
    code = main(["verify", "--corpus", str(tmp_path), "--root", str(tmp_path), "--device", "cpu", "--json"])
    made = corpus_record.record(json.loads(capsys.readouterr().out), ["--device", "cpu"])
    assert code == 0 and made["command"].endswith("--device cpu")
    check(made)
    honest, zeros = made["report"]["cases"]
    assert (honest["got"], zeros["got"]) == ("accepted", "correctness")
    assert set(zeros["seconds"]) == {"static", "correctness"}
    assert made["report"]["summary"] == "ESCAPES 0 of 1 adversaries, 1 of 1 honest accepted"


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.stem)
def test_a_committed_record_has_no_escape(path: Path) -> None:
    made = json.loads(path.read_text())
    check(made)
    assert re.fullmatch(r"[0-9a-f]{40}", made["commit"])
    assert re.search(r"ESCAPES 0 of (\d+) adversaries, (\d+) of \2 honest accepted$", made["report"]["summary"])
