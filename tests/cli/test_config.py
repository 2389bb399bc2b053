"""`kernelopt config`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelopt_bot.cli.main import main
from kernelopt_bot.config import json_schema
from kernelopt_bot.config_reference import markdown

TEXT = "version: 1\ntargets:\n  - path: net.py\n    entry: Net\ngates:\n  min_gain: 1.2\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".kernelopt.yml").write_text(TEXT)
    return tmp_path


def test_each_value_has_its_origin(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--root", str(root), "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["gates.min_gain"] == {"key": "gates.min_gain", "value": 1.2, "origin": ".kernelopt.yml:6"}
    assert rows["gates.seeds"]["origin"] == "default"
    assert rows["targets[0].entry"] == {"key": "targets[0].entry", "value": "Net", "origin": ".kernelopt.yml:4"}
    assert rows["targets[0].inputs"]["origin"] == "default"
    assert rows["levers"]["value"] == ["kernel", "dispatch", "launch"]


def test_the_table_is_aligned(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--root", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    column = lines[0].index(".kernelopt.yml:1")
    assert lines[0].split() == ["version", "1", ".kernelopt.yml:1"]
    assert all(line[column:].startswith((".kernelopt.yml:", "default")) for line in lines)


def test_schema_and_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
    assert main(["config", "--reference"]) == 0
    assert capsys.readouterr().out == markdown()
