from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.agents.brain import Experience
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device import roofs
from kernelopt_bot.search.memory import Environment, Memory, fingerprint, structure
from kernelopt_bot.search.runs import region_places
from kernelopt_bot.search.spots import Spot, of_run
from tests.search.test_regions import captured

HERE = Environment("NVIDIA H200", "2.11.0", "3.6.0")
LESSON = Experience("Tiles pay for wide rows.", "tiles", 1.5, True, "memory-bound", "import triton\n")
BEFORE_LESSONS = """CREATE TABLE outcomes (
    run_hash TEXT, fingerprint TEXT, device TEXT, torch TEXT, triton TEXT, lever TEXT, technique TEXT, gain REAL,
    id TEXT, source TEXT, plan TEXT, at REAL, PRIMARY KEY (run_hash, device, torch, triton, id))"""


@pytest.fixture
def spot() -> Spot:
    (place,) = region_places(captured("product_relu"), None, roofs.pretended())
    return of_run(place)


class Notes(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def memory(folder: Path, notes: Notes, *, writes: bool = True, repository: str = "team/models") -> Memory:
    return Memory.of(repository, writes=writes, note=notes, folder=folder / "memory")


def ideas(spot: Spot) -> list[KernelCandidate]:
    return spot.ideas([{"configs": []}] * len(spot.kernels))


def record(kept: Memory, spot: Spot, candidate: KernelCandidate, gain: float, where: Environment = HERE) -> None:
    assert spot.run is not None
    kept.record(spot.run.graph, candidate, gain, where)


def test_what_was_adopted_is_the_first_idea_of_the_same_run(tmp_path: Path, spot: Spot) -> None:
    notes = Notes()
    kept = memory(tmp_path, notes)
    usual = ideas(spot)
    assert kept.guided(spot, HERE) is spot
    record(kept, spot, usual[-1], 1.4)
    record(kept, spot, dataclasses.replace(usual[1], source=usual[1].source + "\n"), 1.2)
    again = ideas(memory(tmp_path, notes, writes=False).guided(spot, HERE))
    assert [c.id for c in again] == [usual[-1].id, usual[1].id, usual[0].id] and len(usual) == 3
    assert again[0].source == usual[-1].source and again[0].plan == usual[-1].plan
    assert (again[0].run_hash, again[0].steps, again[0].lever) == (spot.run_hash, spot.steps, "region")
    assert notes == []


@pytest.mark.parametrize("where", [
    dataclasses.replace(HERE, device="NVIDIA A100"), dataclasses.replace(HERE, torch="2.12.0"),
    dataclasses.replace(HERE, triton="3.7.0")])
def test_a_candidate_is_not_remembered_elsewhere(tmp_path: Path, spot: Spot, where: Environment) -> None:
    kept = memory(tmp_path, Notes())
    record(kept, spot, ideas(spot)[0], 1.4)
    assert kept.candidates(spot, where) == [] and len(kept.candidates(spot, HERE)) == 1
    assert memory(tmp_path, Notes(), repository="team/other").candidates(spot, HERE) == []


def test_techniques_that_helped_the_same_structure_go_first(tmp_path: Path, spot: Spot) -> None:
    kept = memory(tmp_path, Notes())
    candidate = dataclasses.replace(ideas(spot)[0], run_hash="of another shape")
    record(kept, spot, candidate, 1.5)
    record(kept, spot, dataclasses.replace(candidate, id="second"), 1.1)
    assert spot.run is not None and spot.run.vendor is not None
    structure = fingerprint(spot.kernels, spot.run.vendor.function)
    assert kept.gains(structure, HERE) == {"product_epilogue": pytest.approx(1.3)}
    plain = dataclasses.replace(candidate, id="plain", technique="unknown")
    mixed = dataclasses.replace(spot, ideas=lambda answers: [plain, candidate])
    assert [c.id for c in ideas(kept.guided(mixed, HERE))] == [candidate.id, "plain"]


def test_the_structure_is_that_of_other_sizes(spot: Spot) -> None:
    (kernel,) = spot.kernels
    larger = dataclasses.replace(kernel, source=kernel.source.replace("3456", "9216").replace("% 72", "% 96"))
    other = dataclasses.replace(kernel, source=kernel.source.replace("tmp0 + tmp1", "tmp0 - tmp1"))
    assert larger.source != kernel.source != other.source
    assert fingerprint([larger], "") == fingerprint([kernel], "") != fingerprint([other], "")
    assert fingerprint([kernel], "extern_kernels.mm") != fingerprint([kernel], "")


def test_a_run_that_may_not_write_leaves_no_file(tmp_path: Path, spot: Spot) -> None:
    notes = Notes()
    record(memory(tmp_path, notes, writes=False), spot, ideas(spot)[0], 2.0)
    assert not (tmp_path / "memory").exists() and notes == []


@pytest.mark.parametrize("writes", [True, False])
def test_a_damaged_file_costs_a_note(tmp_path: Path, spot: Spot, writes: bool) -> None:
    notes = Notes()
    kept = memory(tmp_path, notes, writes=writes)
    kept.path.parent.mkdir()
    kept.path.write_bytes(os.urandom(4096))
    assert kept.guided(spot, HERE) is spot and len(notes) == 2
    assert kept.path.name in notes[0] and str(tmp_path) not in notes[0]
    record(kept, spot, ideas(spot)[0], 2.0)


def test_a_locked_file_costs_a_note(tmp_path: Path, spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelopt_bot.search.memory.WAIT_S", 0.01)
    notes = Notes()
    kept = memory(tmp_path, notes)
    record(kept, spot, ideas(spot)[0], 2.0)
    other = sqlite3.connect(kept.path)
    other.execute("BEGIN EXCLUSIVE")
    assert kept.candidates(spot, HERE) == [] and "locked" in notes[0]
    other.close()
    assert len(kept.candidates(spot, HERE)) == 1


def test_another_release_s_rows_are_left_alone(tmp_path: Path, spot: Spot) -> None:
    notes = Notes()
    kept = memory(tmp_path, notes)
    record(kept, spot, ideas(spot)[0], 2.0)
    connection = sqlite3.connect(kept.path)
    connection.execute("UPDATE outcomes SET plan = '{}'")
    connection.commit()
    assert kept.candidates(spot, HERE) == [] and notes == []
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert kept.candidates(spot, HERE) == [] and "format is 99" in notes[0]


def test_two_runs_write_at_once(tmp_path: Path, spot: Spot) -> None:
    notes, candidate = Notes(), ideas(spot)[0]

    def write(name: str) -> None:
        for i in range(5):
            record(memory(tmp_path, notes), spot, dataclasses.replace(candidate, id=f"{name}{i}"), 1.1)

    threads: list[Any] = [threading.Thread(target=write, args=(n,)) for n in "ab"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(memory(tmp_path, notes).candidates(spot, HERE)) == 10 and notes == []


@pytest.mark.parametrize("change", ["plan = '" + "[" * 50_000 + "'", "plan = NULL", "plan = x'ff'", "gain = NULL",
                                    "gain = 'much'", "lever = 'launch'"], ids=lambda c: c[:14])
def test_a_row_of_another_shape_costs_nothing(tmp_path: Path, spot: Spot, change: str) -> None:
    kept = memory(tmp_path, Notes())
    candidate = ideas(spot)[0]
    record(kept, spot, candidate, 1.2)
    with sqlite3.connect(kept.path) as connection:
        connection.execute(f"UPDATE outcomes SET {change}")
    connection.close()
    found = kept.guided(spot, HERE).ideas([{"configs": []}] * len(spot.kernels))
    assert {c.id for c in found} >= {c.id for c in ideas(spot)}


def test_a_lesson_is_found_for_kernels_of_the_same_structure(tmp_path: Path, spot: Spot) -> None:
    kept = memory(tmp_path, Notes())
    kept.learn([(structure(spot), LESSON)])
    (kernel,) = spot.kernels

    def of(old: str, new: str) -> str:
        assert old in kernel.source
        return structure(dataclasses.replace(spot, kernels=(
            dataclasses.replace(kernel, source=kernel.source.replace(old, new)),)))

    again = memory(tmp_path, Notes(), writes=False)
    assert again.lessons([of("% 72", "% 96")], 8) == [LESSON]
    assert again.lessons([of("tmp0 + tmp1", "tmp0 - tmp1")], 8) == again.lessons([], 8) == []
    assert memory(tmp_path, Notes(), repository="team/other").lessons([structure(spot)], 8) == []


def test_only_runs_that_may_write_keep_lessons(tmp_path: Path) -> None:
    notes = Notes()
    reading = memory(tmp_path, notes, writes=False)
    reading.learn([("s", LESSON)])
    assert reading.lessons(["s"], 8) == [] and not (tmp_path / "memory").exists()
    memory(tmp_path, notes).learn([])
    assert not (tmp_path / "memory").exists() and notes == []


def test_the_newest_lessons_are_kept_and_each_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelopt_bot.search.memory.MOST_LESSONS", 3)
    kept = memory(tmp_path, Notes())
    for n in (0, 1, 2, 3, 3):
        kept.learn([("s" if n else "t", dataclasses.replace(LESSON, lesson=f"l{n}", factor=float(n)))])
    assert [e.lesson for e in kept.lessons(["s", "t"], 8)] == ["l1", "l2", "l3"]
    assert [e.lesson for e in kept.lessons(["s"], 2)] == ["l2", "l3"] and kept.lessons(["s"], 0) == []
    kept.learn([("s", dataclasses.replace(LESSON, lesson="l3", factor=0.5, kept=False, source=""))])
    assert kept.lessons(["s"], 1) == [Experience("l3", "tiles", 0.5, False, "memory-bound", "")]


@pytest.mark.parametrize("change", [
    "factor = 'much'", "factor = NULL", "factor = 9e999", "kept = 7", "bound = 'lazy'", "source = NULL",
    "lesson = x'ff'"])
def test_a_lesson_of_another_shape_is_left_out(tmp_path: Path, change: str) -> None:
    notes = Notes()
    kept = memory(tmp_path, notes)
    kept.learn([("s", LESSON)])
    with sqlite3.connect(kept.path) as connection:
        connection.execute(f"UPDATE lessons SET {change}")
    connection.close()
    kept.learn([("s", dataclasses.replace(LESSON, lesson="again"))])
    assert [e.lesson for e in kept.lessons(["s"], 8)] == ["again"] and notes == []


def test_half_a_pair_of_surrogates_is_kept_as_text(tmp_path: Path) -> None:
    notes = Notes()
    kept = memory(tmp_path, notes)
    kept.learn([("s", dataclasses.replace(LESSON, lesson="wide \ud83d tiles"))])
    assert [e.lesson for e in kept.lessons(["s"], 8)] == [r"wide \ud83d tiles"] and notes == []


@pytest.mark.parametrize("writes", [True, False])
def test_a_damaged_or_locked_file_costs_its_lessons_and_a_note(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool) -> None:
    monkeypatch.setattr("kernelopt_bot.search.memory.WAIT_S", 0.01)
    notes = Notes()
    memory(tmp_path, notes).learn([("s", LESSON)])
    kept = memory(tmp_path, notes, writes=writes)
    other = sqlite3.connect(kept.path)
    other.execute("BEGIN EXCLUSIVE")
    assert kept.lessons(["s"], 8) == []
    kept.learn([("s", LESSON)])
    assert len(notes) == 1 + writes and all("locked" in n for n in notes)
    other.close()
    assert kept.lessons(["s"], 8) == [LESSON]
    kept.path.write_bytes(os.urandom(4096))
    assert kept.lessons(["s"], 8) == [] and "not a database" in notes[-1] and kept.path.name in notes[-1]


def test_a_file_without_the_table_of_lessons_gets_it_from_a_run_that_writes(tmp_path: Path, spot: Spot) -> None:
    notes, candidate = Notes(), ideas(spot)[0]
    source = memory(tmp_path / "new", notes)
    record(source, spot, candidate, 1.4)
    kept = memory(tmp_path, notes)
    kept.path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(source.path)) as connection:
        rows = connection.execute("SELECT * FROM outcomes").fetchall()
    with sqlite3.connect(kept.path) as connection:
        connection.execute(BEFORE_LESSONS)
        connection.executemany(f"INSERT INTO outcomes VALUES ({', '.join('?' * 12)})", rows)
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    before = kept.path.read_bytes()
    reading = memory(tmp_path, notes, writes=False)
    assert [c.id for c in reading.candidates(spot, HERE)] == [candidate.id]
    assert reading.lessons(["s"], 8) == [] and kept.path.read_bytes() == before
    kept.learn([("s", LESSON)])
    assert reading.lessons(["s"], 8) == [LESSON]
    assert [c.id for c in reading.candidates(spot, HERE)] == [candidate.id] and notes == []


def test_lessons_and_outcomes_are_written_at_once(tmp_path: Path, spot: Spot) -> None:
    notes, candidate = Notes(), ideas(spot)[0]

    def write(n: int) -> None:
        kept = memory(tmp_path, notes)
        kept.learn([("s", dataclasses.replace(LESSON, lesson=f"l{n}"))])
        record(kept, spot, dataclasses.replace(candidate, id=f"c{n}"), 1.1)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    kept = memory(tmp_path, notes)
    assert {e.lesson for e in kept.lessons(["s"], 8)} == {"l0", "l1", "l2", "l3"}
    assert len(kept.candidates(spot, HERE)) == 4 and notes == []


@pytest.mark.parametrize("change", ["id = x'2e2e2f78'", "source = x'ff'", "technique = x'ff'", "technique = NULL",
                                    "source = printf('%.*c', 900000, 'x'), technique = x'00'"])
def test_a_candidate_whose_words_are_no_texts_is_left_out(tmp_path: Path, spot: Spot, change: str) -> None:
    notes = Notes()
    kept = memory(tmp_path, notes)
    record(kept, spot, ideas(spot)[0], 1.2)
    with sqlite3.connect(kept.path) as connection:
        connection.execute(f"UPDATE outcomes SET {change}")
    connection.close()
    assert kept.candidates(spot, HERE) == [] and notes == []


ENDLESS = "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c)"


@pytest.mark.parametrize("poison, words", [
    (f"ALTER TABLE lessons RENAME TO other; CREATE VIEW lessons AS {ENDLESS} SELECT '' fingerprint, '' direction, "
     "'' lesson, 1.0 factor, 1 kept, '' bound, '' source FROM c", "more than tables"),
    ("CREATE TRIGGER t AFTER INSERT ON lessons BEGIN DELETE FROM outcomes; END", "more than tables"),
    ("UPDATE lessons SET source = printf('%.*c', 5000000, 'x')", "too big"),
    ("PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE lessons (x' WHERE name = 'lessons'",
     "malformed"),
    ("DROP TABLE lessons", "no such table"), ("ALTER TABLE lessons DROP COLUMN source", "no such column|has 6 columns"),
    ("UPDATE lessons SET lesson = CAST(x'ff' AS TEXT)", "UTF-8"),
])
@pytest.mark.parametrize("writes", [True, False])
def test_a_file_made_by_another_hand_costs_a_note(tmp_path: Path, poison: str, words: str, writes: bool) -> None:
    notes = Notes()
    memory(tmp_path, notes).learn([("s", LESSON)])
    kept = memory(tmp_path, notes, writes=writes)
    with contextlib.closing(sqlite3.connect(kept.path)) as connection:
        connection.executescript(poison)
    assert kept.lessons(["s"], 8) == [] and len(notes) == 1
    assert re.search(words, notes[0]), notes


def test_work_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default that counts for ever: nothing but a table, and no row that says so."""
    monkeypatch.setattr("kernelopt_bot.search.memory.MOST_STEPS", 20)
    notes = Notes()
    kept = memory(tmp_path, notes)
    kept.learn([("s", LESSON)])
    assert kept._with(lambda c: c.execute(f"{ENDLESS} SELECT COUNT(*) FROM c").fetchall(), []) == []
    assert len(notes) == 1 and "interrupted" in notes[0] and kept.lessons(["s"], 8) == [LESSON]


@pytest.mark.parametrize("change", ["lesson = printf('%.*c', 5000, 'x')", "direction = printf('%.*c', 5000, 'x')"])
def test_a_lesson_is_no_longer_than_a_brains(tmp_path: Path, change: str) -> None:
    notes = Notes()
    kept = memory(tmp_path, notes)
    kept.learn([("s", LESSON)])
    with contextlib.closing(sqlite3.connect(kept.path)) as connection, connection:
        connection.execute(f"UPDATE lessons SET {change}")
    assert kept.lessons(["s"], 8) == [] and notes == []
