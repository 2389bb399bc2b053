"""A job from one phase to the next: unchanged, or refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.errors import InputError
from kernelopt_bot.events import wire
from kernelopt_bot.events.commands import Command
from kernelopt_bot.events.job import Job, PullRequest

JOB = Job("issue_comment", "created", "octo-org/models", "1" * 40, "2" * 40,
          PullRequest(12, "a\n::error::b", "octocat", "x;y", "1" * 40, "trunk", "2" * 40, True, False, ("perf",)),
          command=Command("optimize", ("encoder",), ("kernel",), 60.0, 2.0, "1" * 40), number=12, report_only=True)


@given(st.builds(Job) | st.just(JOB))
def test_there_and_back(job: Job) -> None:
    text = wire.dump(job)
    assert wire.load(text) == job
    assert "\n" not in text


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{", "[" * 5000])
def test_what_is_no_job(text: str) -> None:
    with pytest.raises(InputError, match="the job is malformed"):
        wire.load(text)


@pytest.mark.parametrize(("key", "value"), [("number", "12"), ("sweep", 1), ("operation", "merge"), ("head_sha", None)])
def test_wrong_types(key: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        wire.load(json.dumps({**json.loads(wire.dump(JOB)), key: value}))
    assert caught.value.where == key


def test_too_long() -> None:
    with pytest.raises(InputError, match="too long"):
        wire.load(" " * (wire.LONGEST + 1))
