from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from kernelopt_bot.agents import handoff, replay
from kernelopt_bot.agents.brain import Exchange, Prompt, Question, Reply
from kernelopt_bot.agents.council import Council
from kernelopt_bot.agents.handoff import Handoff
from kernelopt_bot.agents.records import Records
from kernelopt_bot.agents.replay import Replay
from kernelopt_bot.errors import InputError
from tests.agents.facts import Scripted, candidate_text, question, spot


def words(asked: Question) -> Prompt:
    return Prompt("You are the " + asked.role, f"attempt {asked.attempt}", "1")


def test_a_question_is_written_and_its_answer_read_by_the_next_run(tmp_path: Path) -> None:
    folder = tmp_path / "hand" / "net"
    (first,) = Handoff(folder, words).ask([question()])
    assert first.outcome == "pending" and not first.lasting
    page = (folder / f"{question().key}.prompt.md").read_text()
    assert "You are the executor" in page and '"launches"' in page
    assert "How to answer" in (tmp_path / "hand" / "README.md").read_text()
    (folder / f"{question().key}.answer.md").write_text(candidate_text())
    (second,) = Handoff(folder, words).ask([question()])
    assert (second.outcome, second.text) == ("answered", candidate_text())


def test_the_repair_of_an_answer_is_a_question_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    brain = Handoff(folder, words)
    folder.mkdir()
    (folder / f"{question().key}.answer.json").write_text('{"source": "x"}')
    (told,) = Council([brain]).ask(brain, [question()])
    assert told.answer is None and (folder / f"{question().key}-repair.prompt.md").exists()
    (folder / f"{question().key}-repair.answer.txt").write_text(candidate_text())
    (told,) = Council([brain]).ask(brain, [question()])
    assert told.answer is not None


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "long"])
def test_an_answer_that_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "k.answer.md"
    if kind == "link":
        path.symlink_to("/etc/hostname")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"x" * (handoff.LONGEST + 1))
    with pytest.raises(InputError, match="cannot be read"):
        handoff.answer_of(tmp_path, "k")


def test_an_empty_answer_is_none(tmp_path: Path) -> None:
    (tmp_path / "k.answer.md").write_text(" \n")
    assert handoff.answer_of(tmp_path, "k") is None


def test_entries_say_what_is_open_and_what_does_not_fit(tmp_path: Path) -> None:
    asked = [question(), question(round=1), question(round=2), question(round=3)]
    Handoff(tmp_path, words).ask(asked)
    (tmp_path / "notes.json").write_text("[1]")
    for q, text in zip(asked, ["", candidate_text(), "no", candidate_text("import os\n" + "x = 1")], strict=True):
        (tmp_path / f"{q.key}.answer.md").write_text(text)
    found = {e.exchange.round: e for e in handoff.entries(tmp_path)}
    assert [found[n].exchange.outcome for n in range(4)] == ["pending", "answered", "answered", "answered"]
    assert found[1].faults == () and "no JSON object" in found[2].faults[0] and "import os" in found[3].faults[0]


def test_a_run_s_record_is_replayed_answer_for_answer(tmp_path: Path) -> None:
    records = Records(tmp_path)
    author = Scripted(lambda q: candidate_text() if q.repair or q.round == 0 else "{}")
    council = Council([author], records.record)
    asked = [question(), question(round=1)]
    for told in council.ask(author, asked):
        council.became(told, "passed")
    brain = Replay(replay.load(tmp_path))
    again = Council([brain])
    assert [t.answer for t in again.ask(brain, asked)] == [t.answer for t in Council([author]).ask(author, asked)]
    (unknown,) = brain.ask([question(round=7)])
    assert unknown.outcome == "unknown"


def test_a_handoff_folder_is_a_record_too(tmp_path: Path) -> None:
    Handoff(tmp_path / "net", words).ask([question()])
    with pytest.raises(InputError, match="no recorded exchange"):
        replay.load(tmp_path)
    (tmp_path / "net" / f"{question().key}.answer.md").write_text(candidate_text())
    (reply,) = Replay(replay.load(tmp_path)).ask([question()])
    assert reply.text == candidate_text()


def test_another_compiler_s_hash_is_met_by_the_run_s_buffers() -> None:
    old = question()
    moved = question(spots=(spot("000011112222"),), direction=None)
    direction = old.direction
    assert direction is not None
    exchange = Exchange.of("llm", old, Reply("answered", candidate_text()))
    moved = dataclasses.replace(
        moved, direction=dataclasses.replace(direction, spot="000011112222"),
        spots=(dataclasses.replace(moved.spots[0], signature=old.spots[0].signature),))
    (reply,) = Replay([exchange]).ask([moved])
    assert reply.outcome == "answered"
    twin = dataclasses.replace(exchange, key=exchange.key.replace("executor", "executor-2"))
    (reply,) = Replay([exchange, twin]).ask([moved])
    assert reply.outcome == "unknown", "two fit"


@pytest.mark.parametrize("content", ["", "not json\n", '{"schema": 1}\n'])
def test_a_record_without_exchanges_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / "exchanges.jsonl").write_text(content)
    with pytest.raises(InputError, match="no recorded exchange"):
        replay.load(tmp_path)
