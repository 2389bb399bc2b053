from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.report.blocks import Mono, Strong
from kernelopt_bot.report.phrases import phrase
from kernelopt_bot.report.text import one_line

ROOT = Path(__file__).parents[2]


def test_spans_come_from_the_template() -> None:
    line = phrase("target", name="block", entry="Block", path="models/block.py")
    assert line == (Mono("block"), ": class ", Mono("Block"), " in ", Mono("models/block.py"))
    assert phrase("nothing", tried=1)[0] == Strong("Nothing was adopted.")


@given(st.text(st.sampled_from("\x01\x02ms<{%}` \n@x")))
def test_values_cannot_make_spans_or_run_templates(value: str) -> None:
    line = phrase("stopped", reason=value)
    assert all(isinstance(span, str) for span in line)
    assert "".join(str(s) for s in line) == one_line(
        f"The run ended early: {one_line(value)}. What is reported below was verified before that."
    )
    assert phrase("target", name=value, entry="E", path="p")[0] == Mono(one_line(value))


def test_a_missing_value_or_phrase_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        phrase("stopped")
    with pytest.raises(KeyError):
        phrase("no such phrase")


def test_every_phrase_of_the_template_is_used() -> None:
    defined = set(re.findall(r"{% block (\w+) %}", (ROOT / "templates" / "report" / "phrases.j2").read_text()))
    code = "\n".join(p.read_text() for p in (ROOT / "kernelopt_bot" / "report").glob("*.py"))
    used = {name for name in defined if f'"{name}"' in code}
    assert used == defined
