from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.turns import HOST_ONLY, TIMED, VARIABLE, Kind, Turns, kind, turns_in
from kernelopt_bot.sandbox.worker import kernel_methods, model_methods

SHORT_S, LONG_S = 0.3, 10.0


class Taker:
    """Takes a turn in a thread of its own and keeps it until told."""

    def __init__(self, turns: Turns, kind: Kind) -> None:
        self.has, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(turns, kind), daemon=True)
        self._thread.start()

    def _run(self, turns: Turns, kind: Kind) -> None:
        with turns.turn(kind):
            self.has.set()
            self._end.wait(LONG_S)

    def end(self) -> None:
        self._end.set()
        self._thread.join(LONG_S)


@pytest.mark.parametrize(("first", "second", "both"), [
    ("alone", "alone", False), ("alone", "beside", False), ("beside", "alone", False), ("beside", "beside", True),
    ("alone", "apart", True), ("apart", "alone", True)])
def test_who_may_go_with_whom(tmp_path: Path, first: Kind, second: Kind, both: bool) -> None:
    one = Taker(Turns(tmp_path), first)
    assert one.has.wait(LONG_S)
    other = Taker(Turns(tmp_path), second)
    assert other.has.wait(LONG_S if both else SHORT_S) == both
    one.end()
    assert other.has.wait(LONG_S)
    other.end()


def test_who_waits_to_be_alone_goes_before_those_who_come_later(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    first = Taker(turns, "beside")
    assert first.has.wait(LONG_S)
    alone = Taker(turns, "alone")
    assert not alone.has.wait(SHORT_S)
    later = Taker(turns, "beside")
    assert not later.has.wait(SHORT_S)
    first.end()
    assert alone.has.wait(LONG_S) and not later.has.is_set()
    alone.end()
    assert later.has.wait(LONG_S)
    later.end()


def test_the_turn_of_a_process_that_is_killed_is_free(tmp_path: Path) -> None:
    code = ("import sys, time; from pathlib import Path; from kernelopt_bot.sandbox.turns import Turns\n"
            "with Turns(Path(sys.argv[1])).turn('alone'): print('has', flush=True); time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE,
                              cwd=Path(__file__).parents[2])
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"has\n"
        waiting = Taker(Turns(tmp_path), "beside")
        assert not waiting.has.wait(SHORT_S)
        holder.send_signal(signal.SIGKILL)
        assert waiting.has.wait(LONG_S)
        waiting.end()


def test_each_method_of_a_worker_has_its_kind() -> None:
    """A new one has to be thought of here: one that times and is not named would be timed beside others' work."""
    beside = {"capture", "check_model", "check_options", "check_step", "hello", "launch_grids", "load",
              "record_launches", "reference_graph"}
    methods = {*model_methods.METHODS, *kernel_methods.METHODS}
    assert {m for m in methods if kind(m, {"pairs": [["a", "b"]]}) == "beside"} == beside
    assert methods - beside == TIMED | HOST_ONLY
    assert kind("time_model", {"pairs": []}) == kind("time_model", {}) == "beside"


def test_a_call_waits_for_its_turn_and_the_wait_is_none_of_its_time(
        make: Callable[..., Worker], tmp_path: Path) -> None:
    waited: list[float] = []
    traced: list[tuple[str, float]] = []
    worker = make(turns=Turns(tmp_path), waited=waited.append, trace=lambda m, s, e: traced.append((m, s)))
    other = Taker(Turns(tmp_path), "alone")
    assert other.has.wait(LONG_S)
    threading.Timer(1.0, other.end).start()
    # the time-out is the call's alone
    assert worker.call("late", {"seconds": 0.0}, timeout=0.9) == {"ok": True}
    assert waited[0] > 0.5 and traced == [("late", pytest.approx(0.0, abs=0.5))]


def test_arms_are_compiled_beside_others_before_they_are_timed_alone(
        make: Callable[..., Worker], tmp_path: Path) -> None:
    given: list[dict[str, Any]] = []
    worker = make(turns=Turns(tmp_path), trace=lambda m, s, e: given.append({"method": m}))
    other = Taker(Turns(tmp_path), "beside")
    assert other.has.wait(LONG_S)
    result: list[Any] = []
    call = threading.Thread(target=lambda: result.append(worker.call(
        "time_model", {"pairs": [["a", "b"]], "check": True}, timeout=LONG_S)), daemon=True)
    call.start()
    call.join(1.0)
    assert given == [{"method": "time_model"}], "compiled, and waiting for its turn"
    other.end()
    call.join(LONG_S)
    assert len(given) == 2 and result == [{"pairs": [["a", "b"]], "check": True}]


def test_the_folder_of_the_locks_is_named_by_the_environment(tmp_path: Path) -> None:
    assert turns_in({}) is None and turns_in({VARIABLE: ""}) is None
    found = turns_in({VARIABLE: str(tmp_path)})
    assert found is not None and found.folder == tmp_path
    for wrong in (str(tmp_path / "none"), "relative"):
        with pytest.raises(InputError, match=VARIABLE):
            turns_in({VARIABLE: wrong})
