from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelopt_bot.agents.brain import Exchange, Reply
from kernelopt_bot.agents.records import Records
from kernelopt_bot.cli.main import main
from tests.agents.facts import candidate_text, question


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that has two open questions and an answered one."""
    records = Records(tmp_path / "run" / "net")
    for number, reply in enumerate((Reply("pending"), Reply("spent"), Reply("answered", candidate_text()))):
        records.record(Exchange.of("llm", question(round=number), reply))
    return tmp_path / "run"


def keys(folder: Path) -> list[str]:
    return sorted(p.name.removesuffix(".prompt.md") for p in folder.rglob("*.prompt.md"))


def test_what_a_run_left_open_is_exported_answered_and_replayed(
        run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand = tmp_path / "hand"
    assert main(["handoff", "export", str(run), str(hand)]) == 0
    assert keys(hand) == [question().key, question(round=1).key]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"key": k, "text": t}) + "\n" for k, t in (
        (question().key, candidate_text()), (question(round=1).key, "no idea"))))
    assert main(["handoff", "import", str(answers), str(hand)]) == 1
    said = capsys.readouterr().out
    assert f"net/{question().key}: fits" in said and "there is no JSON object" in said
    answers.write_text(json.dumps({"target": "net", "key": question(round=1).key, "text": candidate_text()}) + "\n")
    assert main(["handoff", "import", str(answers), str(hand)]) == 0
    capsys.readouterr()
    assert main(["handoff", "status", str(hand), "--json"]) == 0
    assert [(e["target"], e["state"]) for e in json.loads(capsys.readouterr().out)] == [("net", "answered")] * 2


def test_all_exports_answers_too(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["handoff", "export", "--all", str(run), str(tmp_path / "hand")]) == 0
    assert len(keys(tmp_path / "hand")) == 3
    assert main(["handoff", "status", str(tmp_path / "hand")]) == 0
    assert "3 questions, 2 open, 0 answers do not fit" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("line", "words"), [
    ("no json", "the line is no answer"), ('{"key": "k"}', "the line is no answer"),
    ('{"key": "k", "text": "t"}', "there is no such question"), ("[]", "the line is no answer"),
    ('{"target": "../net", "key": "k", "text": "t"}', "names no target"),
    ('{"key": 1, "text": "t"}', "names no target"),
])
def test_lines_that_are_no_answers_are_named(
        run: Path, tmp_path: Path, line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["handoff", "export", str(run), str(tmp_path / "hand")])
    (tmp_path / "answers.jsonl").write_text(line + "\n")
    assert main(["handoff", "import", str(tmp_path / "answers.jsonl"), str(tmp_path / "hand")]) == 2
    said = capsys.readouterr().err
    assert words in said and "answers.jsonl:1" in said


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["handoff", "status", str(tmp_path / "none")]) == 2
    assert "no such handoff folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["handoff", "export", str(tmp_path / "empty"), str(tmp_path / "hand")]) == 2
    assert "no record of exchanges" in capsys.readouterr().err
