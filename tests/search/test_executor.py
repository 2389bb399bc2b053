from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable

import pytest

from kernelopt_bot.errors import Unavailable
from kernelopt_bot.search.executor import Finished, InProcess
from kernelopt_bot.search.result import TargetResult
from kernelopt_bot.targets.target import Target

TARGETS = [Target(name, "net.py", "Model", "get_inputs") for name in "abcdef"]


def result(target: Target, interrupted: bool = False) -> TargetResult:
    return TargetResult(target, None, None, (), (), (), None, (), {}, None, None, {}, (), interrupted=interrupted)


class At:
    """A place whose search is a function."""

    def __init__(self, search: Callable[[Target], TargetResult]) -> None:
        self._search, self.seen, self.threads = search, list[str](), set[int]()
        self.stopped = threading.Event()
        self.limit = 100

    def refuses(self) -> str:
        return "" if len(self.seen) < self.limit else "the minutes are spent"

    def search(self, target: Target) -> TargetResult:
        self.seen.append(target.name)
        self.threads.add(threading.get_ident())
        return self._search(target)

    def stop(self) -> None:
        self.stopped.set()


def names(finished: Finished) -> str:
    return "".join(r.target.name for r in finished.results)


def test_one_place_works_in_the_caller_s_thread() -> None:
    place = At(result)
    finished = InProcess().run(TARGETS, [place])
    assert names(finished) == "abcdef" and finished.stopped == "" and place.threads == {threading.get_ident()}


def test_several_places_share_the_targets() -> None:
    meeting = threading.Barrier(2, timeout=60)

    def search(target: Target) -> TargetResult:
        if target.name in "ab":
            meeting.wait()
        return result(target)

    places = [At(search), At(search)]
    finished = InProcess().run(TARGETS, places)
    assert names(finished) == "abcdef" and finished.stopped == ""
    assert sorted([*places[0].seen, *places[1].seen]) == list("abcdef") and places[0].seen and places[1].seen
    assert places[0].threads.isdisjoint(places[1].threads)


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_finished_stays_when_the_run_cannot_go_on(count: int) -> None:
    def search(target: Target) -> TargetResult:
        if target.name == "c":
            raise Unavailable("the disk is full")
        return result(target)

    finished = InProcess().run(TARGETS, [At(search) for _ in range(count)])
    assert names(finished).startswith("ab") and "c" not in names(finished)
    assert finished.stopped == "c: the disk is full" and finished.bug is None and not finished.interrupted
    if count == 1:
        assert names(finished) == "ab"


@pytest.mark.parametrize("count", [1, 2])
def test_a_bug_is_handed_on(count: int) -> None:
    def search(target: Target) -> TargetResult:
        raise ZeroDivisionError

    finished = InProcess().run(TARGETS, [At(search) for _ in range(count)])
    assert isinstance(finished.bug, ZeroDivisionError) and "ZeroDivisionError" in finished.stopped
    assert finished.results == ()


@pytest.mark.parametrize("count", [1, 2])
def test_a_limit_leaves_over_what_no_place_takes(count: int) -> None:
    places = [At(result) for _ in range(count)]
    places[0].limit = 2
    finished = InProcess().run(TARGETS, places)
    if count == 2:
        assert names(finished) == "abcdef" and finished.stopped == "" and not finished.limited
        return
    assert names(finished) == "ab" and finished.limited and not finished.interrupted
    assert finished.stopped == "the minutes are spent; not begun: c, d, e, f"


def test_an_interrupted_result_ends_the_run() -> None:
    finished = InProcess().run(TARGETS, [At(lambda t: result(t, interrupted=t.name == "b"))])
    assert names(finished) == "ab" and finished.interrupted and finished.stopped == "interrupted while optimising b"


def test_an_interruption_lets_every_place_end_with_what_it_has() -> None:
    places: list[At] = []
    begun = threading.Barrier(3, timeout=60)

    def search(number: int) -> Callable[[Target], TargetResult]:
        def work(target: Target) -> TargetResult:
            begun.wait()
            assert places[number].stopped.wait(60)
            return result(target)
        return work

    places += [At(search(0)), At(search(1))]

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.1)
        _thread.interrupt_main()

    helper = threading.Thread(target=interrupt)
    helper.start()
    finished = InProcess().run(TARGETS, places)
    helper.join()
    assert finished.interrupted and finished.stopped == "interrupted" and names(finished) == "ab"
