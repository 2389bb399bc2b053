"""The phases as `tests/cli` runs them, on a clock that only waiting moves."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from kernelopt_bot.publish.github import GitHub
from tests.cli.conftest import case  # noqa: F401  (a fixture)
from tests.publish.test_bundle import made  # noqa: F401  (a fixture)


class Clock:
    """Seconds since the epoch; `slept` holds each wait."""

    def __init__(self) -> None:
        self.now, self.slept = time.time(), [0.0]

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """No test here waits for GitHub's limits, nor for the second that PyGithub leaves between two writes."""
    clock = Clock()
    assert GitHub.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(GitHub.__init__.__kwdefaults__, "sleep", clock.sleep)
    monkeypatch.setitem(GitHub.__init__.__kwdefaults__, "clock", clock)
    monkeypatch.setattr("github.Requester.time", SimpleNamespace(sleep=lambda seconds: None))
    return clock
