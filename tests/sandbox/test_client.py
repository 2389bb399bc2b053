"""The client against a worker that lies, and against the real one in each jail."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.errors import Unavailable
from kernelopt_bot.sandbox.client import (
    REVIVALS,
    Worker,
    WorkerCrashed,
    WorkerFailed,
    WorkerLied,
    WorkerTimeout,
    defuse,
)
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.sandbox.lend import lend
from tests.sandbox.jails import open_jail


def test_result_and_progress(make: Callable[..., Worker]) -> None:
    worker, seen = make(), []
    assert worker.call("honest", {}, timeout=10, progress=seen.append) == {"ok": True}
    assert seen == [{"text": ":\N{ZERO WIDTH SPACE}:error:\N{ZERO WIDTH SPACE}:half", "done": 1, "of": 2}]
    assert worker.call("honest", {}, timeout=10) == {"ok": True}


def test_an_error_answer_leaves_the_worker_alive(make: Callable[..., Worker]) -> None:
    worker = make()
    with pytest.raises(WorkerFailed) as caught:
        worker.call("error", {}, timeout=10)
    assert caught.value.kind == "target_import" and caught.value.detail == "d"
    assert "::" not in caught.value.message and "\x1b" not in caught.value.message
    assert worker.alive and worker.call("honest", {}, timeout=10)


@pytest.mark.parametrize("method", [
    "other number", "number as text", "not JSON", "deep", "not an object", "both", "result is a list", "oversized",
    "endless progress", "closes", "not lost",
])  # fmt: skip
def test_lies_are_noticed(make: Callable[..., Worker], method: str) -> None:
    worker = make()
    with pytest.raises(WorkerLied):
        worker.call(method, {}, timeout=30)
    assert not worker.alive
    with pytest.raises(WorkerCrashed, match="not running"):
        worker.call("honest", {}, timeout=1)


def test_an_answer_to_an_earlier_question(make: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are drawn: the last one, the next one and none are refused."""
    drawn: list[int] = []
    draw = secrets.randbelow
    monkeypatch.setattr(secrets, "randbelow", lambda limit: drawn.append(draw(limit)) or drawn[-1])
    worker = make()
    for wrong in (lambda: drawn[-1], lambda: drawn[-1] + 1, lambda: 0, lambda: True, lambda: None):
        worker.restart()
        assert worker.call("honest", {}, timeout=10)
        with pytest.raises(WorkerLied, match="another question"):
            worker.call("replay", {"number": wrong()}, timeout=10)
    assert len(set(drawn)) == len(drawn) == 10


def test_an_answer_after_the_time_is_never_seen(make: Callable[..., Worker]) -> None:
    worker = make()
    with pytest.raises(WorkerTimeout):
        worker.call("late", {"seconds": 0.6}, timeout=0.3)
    worker.restart()
    time.sleep(0.6)
    assert worker.call("environment", {}, timeout=10).keys() == {"environment", "arguments"}


@pytest.mark.parametrize("text", [
    '{"x": NaN}', '{"x": [Infinity, -Infinity]}', '{"x": 1e999}', '{"x": ' + "9" * 4000 + "}",
    '{"x": 1, "x": 2}', '{"x": "\\ud800"}', "{" + '"x":{' * 500 + "}" * 501,
])
def test_odd_numbers_and_words_arrive_as_they_are(make: Callable[..., Worker], text: str) -> None:
    """They are JSON to Python. What is asked for a number has to see whether it is finite, and how large."""
    assert "x" in make().call("numbers", {"text": text}, timeout=10)


@pytest.mark.parametrize("text", ['{"x": ' + "9" * 5000 + "}", '{"x": nan}', '{"x": 01}', "{'x': 1}", "[" * 9999])
def test_what_is_not_json(make: Callable[..., Worker], text: str) -> None:
    with pytest.raises(WorkerLied, match="not JSON"):
        make().call("numbers", {"text": text}, timeout=10)


@pytest.mark.parametrize(("what", "name", "says"), [
    ("right", "../tensor.raw", "outside its folder"), ("link", "tensor.raw", "outside its folder"),
    ("short", "tensor.raw", "does not have the 8 bytes"), ("long", "tensor.raw", "does not have the 8 bytes"),
    ("pipe", "tensor.raw", "does not have the 8 bytes"), ("folder", "tensor.raw", "does not have the 8 bytes"),
    ("none", "tensor.raw", "cannot be read"), ("right", "tensor.raw", ""),
])
def test_what_it_says_of_its_files(make: Callable[..., Worker], tmp_path: Path, what: str, name: str,
                                   says: str) -> None:
    secret, borrower = tmp_path / "secret", tmp_path / "borrower"
    secret.write_bytes(b"password")
    borrower.mkdir()
    reference = {"file": name, "storage_bytes": 8}
    worker = make()
    answer = worker.call("file", {"what": what, "reference": reference, "folder": str(worker.scratch),
                                  "outside": str(secret)}, timeout=10)
    if says:
        with pytest.raises(WorkerLied, match=says):
            lend(answer["saved"], worker.scratch, borrower)
        assert list(borrower.iterdir()) == []
    else:
        lend(answer["saved"], worker.scratch, borrower)
        assert (borrower / name).read_bytes() == b"xxxxxxxx"


def test_a_file_that_changes_while_it_is_looked_at(make: Callable[..., Worker], tmp_path: Path) -> None:
    secret, borrower = tmp_path / "secret", tmp_path / "borrower"
    secret.write_bytes(b"password")
    borrower.mkdir()
    worker, outcomes = make(), set()
    worker.call("swaps", {"folder": str(worker.scratch), "outside": str(secret)}, timeout=10)
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        with contextlib.suppress(WorkerLied):
            lend({"file": "tensor.raw", "storage_bytes": 8}, worker.scratch, borrower)
            outcomes.add((borrower / "tensor.raw").read_bytes())
            (borrower / "tensor.raw").unlink()
    assert outcomes == {b"xxxxxxxx"}


def test_a_worker_that_lost_its_gpu_is_started_anew(make: Callable[..., Worker]) -> None:
    """Its last answer holds."""
    worker = make()
    assert worker.call("lost GPU", {}, timeout=10) == {"ok": True}
    assert not worker.alive
    with pytest.raises(WorkerCrashed, match="not running"):
        worker.call("honest", {}, timeout=10)
    worker.restart()
    assert worker.call("honest", {}, timeout=10)


def test_a_worker_that_revives_loads_again(make: Callable[..., Worker]) -> None:
    worker = make(revives=True)
    given = {"folder": str(worker.scratch)}
    with pytest.raises(WorkerCrashed):
        worker.call("dies", {}, timeout=10)
    with pytest.raises(WorkerCrashed, match="not running"):
        worker.call("load", given, timeout=10)
    worker.restart()
    worker.call("load", given, timeout=10)
    worker.call("capture", {**given, "lane": "cpu"}, timeout=10)
    worker.call("capture", {**given, "lane": "pretend"}, timeout=10)
    for method in ("dies", "lost GPU", "hangs"):
        with contextlib.suppress(WorkerCrashed, WorkerTimeout):
            worker.call(method, {}, timeout=0.5)
        assert not worker.alive and worker.call("honest", {}, timeout=10)
    lines = (worker.scratch / "calls").read_text().split()
    assert lines[::2] == ["load", "capture", "capture", *["load", "capture"] * 3]
    assert len(set(lines[1::2])) == 4, "a process each"


def test_a_worker_does_not_revive_for_ever(make: Callable[..., Worker]) -> None:
    worker = make(revives=True)
    for _ in range(REVIVALS + 1):
        with pytest.raises(WorkerCrashed, match="SIGABRT"):
            worker.call("dies", {}, timeout=10)
    with pytest.raises(WorkerCrashed, match="not running"):
        worker.call("honest", {}, timeout=10)


def test_endless_words_do_not_hold_up_the_end(make: Callable[..., Worker]) -> None:
    worker, begin = make(), time.monotonic()
    with pytest.raises(WorkerTimeout):
        worker.call("endless words", {}, timeout=0.7)
    assert time.monotonic() - begin < 8 and 10_000 < len(worker.stderr()) < 80_000


def test_an_answer_that_nobody_asked_for(make: Callable[..., Worker]) -> None:
    worker = make()
    assert worker.call("twice", {}, timeout=10)
    time.sleep(0.2)
    with pytest.raises(WorkerLied):
        worker.call("honest", {}, timeout=10)


@pytest.mark.parametrize(("method", "how"), [("exits", "code 7"), ("dies", "SIGABRT"), ("half a frame", "code 0")])
def test_crashes(make: Callable[..., Worker], method: str, how: str) -> None:
    worker = make()
    with pytest.raises(WorkerCrashed) as caught:
        worker.call(method, {}, timeout=10)
    assert how in caught.value.how
    if method == "exits":
        assert "last words" in caught.value.stderr_tail and "::" not in caught.value.stderr_tail


@pytest.mark.parametrize("method", ["hangs", "slow drip"])
def test_timeout_and_restart(make: Callable[..., Worker], method: str) -> None:
    worker, begin = make(), time.monotonic()
    with pytest.raises(WorkerTimeout):
        worker.call(method, {}, timeout=0.7)
    assert time.monotonic() - begin < 8
    worker.restart()
    assert worker.call("honest", {}, timeout=10) == {"ok": True}


def test_printed_noise_neither_blocks_nor_piles_up(make: Callable[..., Worker]) -> None:
    worker = make()
    assert worker.call("noise", {}, timeout=20) == {"ok": True}
    worker.close()
    assert 10_000 < len(worker.stderr()) < 80_000


def test_a_request_over_the_limit_leaves_the_worker_alive(make: Callable[..., Worker]) -> None:
    worker = make()
    with pytest.raises(ValueError, match="over the limit"):
        worker.call("honest", {"text": "x" * (65 << 20)}, timeout=10)
    assert worker.call("honest", {}, timeout=10)


def test_environment(make: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "hidden")
    worker = make(interpret=True, environment={"EXTRA": "1"})
    answer = worker.call("environment", {}, timeout=10)
    seen, scratch = answer["environment"], str((tmp_path / "scratch").resolve())
    assert "GITHUB_TOKEN" not in seen and "PYTHONPATH" not in seen
    assert seen["TRITON_INTERPRET"] == "1" and seen["EXTRA"] == "1" and seen["CUDA_VISIBLE_DEVICES"] == ""
    for name in ("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"):
        assert seen[name].startswith(scratch + os.sep)
        assert Path(seen[name]).is_dir()
    assert answer["arguments"][:2] == ["-I", "-B"]


def test_a_scratch_folder_that_cannot_be_made(make: Callable[..., Worker], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="folders cannot be made"):
        make(scratch=tmp_path / "file" / "scratch")


def test_what_is_left_behind_ends_with_the_worker(
    any_jail: Jail, make: Callable[..., Worker], tmp_path: Path
) -> None:
    heartbeat = tmp_path / "scratch" / "heartbeat"
    worker = make(jail=any_jail)
    assert worker.call("daemon", {"heartbeat": str(heartbeat)}, timeout=20)
    deadline = time.monotonic() + 10
    while not (heartbeat.exists() and heartbeat.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(WorkerTimeout):
        worker.call("hangs", {}, timeout=0.2)
    size = heartbeat.stat().st_size
    assert size > 0
    time.sleep(0.4)
    assert heartbeat.stat().st_size == size


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_real_worker(name: str, tmp_path: Path) -> None:
    jail = open_jail(name)
    with Worker("model", python=sys.executable, jail=jail, scratch=tmp_path / "scratch") as worker:
        answer = worker.call("hello", {}, timeout=120)
        with pytest.raises(WorkerFailed) as caught:
            worker.call("no such method", {}, timeout=20)
    assert answer["python"].startswith("3.") and answer["gpu"] is None
    assert caught.value.kind == "bad_request"


def test_defuse() -> None:
    assert "::" not in defuse("a::set-env name=X::v:::::") and "##[" not in defuse("##[error]x")
    assert "\r" not in defuse("progress\r::stop") and defuse("plain\n\ttext") == "plain\n\ttext"
