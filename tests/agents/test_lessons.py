from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kernelopt_bot.agents import lessons, strategy
from kernelopt_bot.agents.brain import Experience, GateAnswer, SpotFacts
from kernelopt_bot.agents.council import Council
from kernelopt_bot.agents.lessons import Lessons, structure
from kernelopt_bot.agents.strategy_settings import Strategy
from tests.agents.facts import SOURCE, Scripted, Workshop, candidate_text, spot

LESSON = Experience("Tiles pay for wide rows.", "tiles", 1.5, True, "memory-bound", SOURCE)


def other(text: str) -> SpotFacts:
    return dataclasses.replace(spot("other0000000"), steps=(dataclasses.replace(spot().steps[0], source=text),))


def test_a_lesson_is_found_for_kernels_of_the_same_structure(tmp_path: Path) -> None:
    store = Lessons.of("acme/net", writes=True, folder=tmp_path)
    store.learn([(structure(spot()), LESSON)])
    sizes = other(SOURCE.replace("2 * tl.load", "7 * tl.load") + "# a comment\n")
    assert structure(sizes) == structure(spot())
    assert store.find([sizes], 8) == [LESSON]
    assert store.find([other(SOURCE.replace("2 *", "2 +"))], 8) == []
    assert Lessons.of("acme/other", writes=False, folder=tmp_path).find([spot()], 8) == []


def test_only_runs_that_may_write_do(tmp_path: Path) -> None:
    Lessons.of("acme/net", writes=False, folder=tmp_path).learn([("s", LESSON)])
    assert list(tmp_path.iterdir()) == []


def test_the_newest_are_kept_and_each_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "MOST", 3)
    store = Lessons(tmp_path / "l.jsonl", writes=True)
    for n in (0, 1, 2, 3, 3):
        store.learn([(structure(spot()), dataclasses.replace(LESSON, lesson=f"l{n}"))])
    assert [e.lesson for e in store.find([spot()], 8)] == ["l1", "l2", "l3"]
    assert [e.lesson for e in store.find([spot()], 2)] == ["l2", "l3"] and store.find([spot()], 0) == []


@pytest.mark.parametrize("damage", [
    "not json\n", '{"schema": 2}\n', '{"schema": 1, "structure": "s", "experience": 3}\n',
    "\xff\n", '{"schema": 1, "structure": "s", "experience": {"lesson": "x"}}\n'])
def test_a_damaged_file_costs_its_damaged_lines(tmp_path: Path, damage: str) -> None:
    store = Lessons(tmp_path / "l.jsonl", writes=True)
    store.learn([(structure(spot()), LESSON)])
    with store.path.open("a", encoding="utf-8") as stream:
        stream.write(damage)
    assert store.find([spot()], 8) == [LESSON]
    store.learn([(structure(spot()), dataclasses.replace(LESSON, lesson="again"))])
    assert len(store.path.read_text().splitlines()) == 2


def test_bytes_that_are_no_text_are_no_lessons(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_bytes(b"\xff\xfe")
    assert Lessons(tmp_path / "l.jsonl").find([spot()], 8) == []


def test_a_search_begins_with_what_is_known_and_gives_what_it_learnt() -> None:
    said = {"planner": {"directions": [{"spot": spot().key, "name": "tiles", "idea": "i"}]},
            "executor": candidate_text(), "summarizer": {"action": "append", "lesson": "new"}}
    brain = Scripted(lambda q: said.get(q.role, {}))
    shop = Workshop([spot()], lambda p: (GateAnswer("correctness", True), 2.0))
    outcome = strategy.run(Council([brain]), shop, Strategy(rounds=1, plans=1), known=[LESSON])
    assert [q.experiences for q in brain.asked if q.role == "planner"] == [(LESSON,)]
    ((key, learnt),) = outcome.learnt
    assert key == spot().key and (learnt.lesson, learnt.factor) == ("new", 2.0)
