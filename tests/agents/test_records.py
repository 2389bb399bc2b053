"""`exchanges.jsonl`: on disk at once, the last line of a key counts, no secret in it."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.agents import replay
from kernelopt_bot.agents.brain import Exchange, Prompt, Usage
from kernelopt_bot.agents.records import NAME, Records
from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.process import take_secret

EXCHANGE = Exchange(
    "r0-planner-0-program-a0", "planner", "llm", 0, 0, "", "", "", Prompt("s", "u", "planner 1", 9, ("x",)), "{}",
    "answered", "", (), Usage(10, 2, 3, 0.01), 1.5, "m", ("c1",), "planned")


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    records = Records(tmp_path / "target")
    other = replace(EXCHANGE, key="r0-executor-0-program-a0", role="executor", prompt=None)
    for exchange in (EXCHANGE, other, replace(EXCHANGE, became="kept")):
        records.record(exchange)
    assert Records(tmp_path / "target").load() == (replace(EXCHANGE, became="kept"), other)
    assert len((tmp_path / "target" / NAME).read_text().splitlines()) == 3


def test_two_brains_are_asked_the_same_question(tmp_path: Path) -> None:
    records = Records(tmp_path)
    other = replace(EXCHANGE, brain="builtin", text="other", usage=Usage())
    for exchange in (EXCHANGE, other, replace(EXCHANGE, became="kept")):
        records.record(exchange)
    assert records.load() == (replace(EXCHANGE, became="kept"), other)
    # What is replayed is the model's: the built-in brain answers anew.
    assert {(e.brain, e.text) for e in replay.load(tmp_path)} == {("llm", "{}")}
    Records(tmp_path / "alone").record(other)
    with pytest.raises(InputError, match="no recorded exchange"):
        replay.load(tmp_path / "alone")


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELOPT_RECORD_TEST_KEY_X", "hidden-value-123")
    assert take_secret("KERNELOPT_RECORD_TEST_KEY_X") == "hidden-value-123"
    prompt = Prompt("s", "the key is hidden-value-123", cut=("ghp_0123456789abcdef",))
    Records(tmp_path).record(replace(EXCHANGE, prompt=prompt, text="sk-abcdefgh12345678", faults=("hidden-value-123",)))
    written = (tmp_path / NAME).read_text()
    assert "hidden-value" not in written and "sk-abc" not in written and "ghp_0" not in written
    assert written.count("***") == 4
    assert os.stat(tmp_path / NAME).st_mode & 0o077 == 0


def test_a_torn_line_is_no_beginning_of_the_next(tmp_path: Path) -> None:
    Records(tmp_path).record(EXCHANGE)
    with (tmp_path / NAME).open("a") as file:
        file.write('{"key": "half')
    records = Records(tmp_path)
    records.record(replace(EXCHANGE, key="second"))
    assert [e.key for e in records.load()] == [EXCHANGE.key, "second"]


def test_a_line_of_another_format_is_left_out(tmp_path: Path) -> None:
    lines = [EXCHANGE.to_json(), {**EXCHANGE.to_json(), "schema": 9}, {**EXCHANGE.to_json(), "key": "k"}, [1]]
    (tmp_path / NAME).write_text("".join(json.dumps(x) + "\n" for x in lines) + "not JSON\n")
    assert [e.key for e in Records(tmp_path).load()] == [EXCHANGE.key, "k"]


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    records = Records(tmp_path)
    big = replace(EXCHANGE, text="x" * 20_000)

    def work(number: int) -> None:
        for j in range(5):
            records.record(replace(big, key=f"{number}-{j}"))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(records.load()) == 20


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(Unavailable, match="cannot be kept"):
        Records(tmp_path).record(EXCHANGE)
