from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelopt_bot.compiler.program import Graph, Program
from kernelopt_bot.contract.candidate import OptionsCandidate
from kernelopt_bot.search.stack import DEFAULT, Stack

PROGRAM = Program("net", "cpu", (Graph(0, "", (), (), (), {}),), "2.13.0", "3.7.1", "cpu")
ENVIRONMENT = {"torch": "2.13.0", "triton": "3.7.1", "device": "cpu"}


def options(**given: int | bool) -> OptionsCandidate:
    return OptionsCandidate("-".join(given), "dispatch", given, "technique")


def test_the_empty_stack_is_the_default() -> None:
    assert Stack().empty
    assert Stack().arm("before") == {**DEFAULT, "name": "before"}
    assert DEFAULT["name"] == "default", "an arm is a copy"


def test_options_add_up_and_the_later_wins() -> None:
    stack = Stack().with_options(options(a=1, b=2)).with_options(options(b=3))
    assert stack.options == {"a": 1, "b": 3} and not stack.empty


def test_what_is_timed_is_what_was_written(tmp_path: Path) -> None:
    stack = Stack().with_options(options(cpp_wrapper=True))
    with pytest.raises(ValueError, match="not written"):
        stack.arm("candidate")
    written = stack.written(tmp_path / "made", PROGRAM, "Net", ENVIRONMENT)
    arm = written.arm("candidate")
    assert arm["kind"] == "artifact" and arm["artifact"] == str(tmp_path / "made")
    manifest = json.loads((tmp_path / "made/manifest.json").read_text())
    assert manifest["recipe"]["options"] == {"cpp_wrapper": True} and manifest["class"] == "Net"
    with pytest.raises(ValueError, match="not written"):
        written.with_options(options(a=1)).arm("candidate")
