from __future__ import annotations

import ast
from typing import Any

import pytest

from kernelopt_bot.playbook.kernel_source import NotUnderstood, parse
from kernelopt_bot.playbook.rows_in_flight import TECHNIQUE, walked
from tests.playbook.sites import calls, grown, site


def rows(length: str, count: int) -> dict[str, Any]:
    call = grown(calls("l2norm_3x2047")[0], "2047", length)
    return {**call, "source": call["source"].replace("xnumel = 3\n", f"xnumel = {count}\n")}


def test_the_grid_follows_the_multiprocessors() -> None:
    found = list(TECHNIQUE.propose(site(rows("65535", 32768))))
    assert found and all(c.plan.launches[0].grid == ("min(32768, num_sms * 1)",) for c in found)
    assert {g for c in TECHNIQUE.propose(site(rows("20001", 32768))) for g in c.plan.launches[0].grid} == {
        "min(32768, num_sms * 1)", "min(32768, num_sms * 2)"}


@pytest.mark.parametrize(("length", "count"), [("393215", 4096), ("65535", 132)])
def test_rows_that_exceed_the_cache_or_are_few_are_left(length: str, count: int) -> None:
    assert TECHNIQUE.applies(site(rows("65535", 32768))) is not None
    assert TECHNIQUE.applies(site(rows(length, count))) is None


def test_the_body_walks_over_the_rows() -> None:
    *outside, loop = walked(parse(calls("softmax_3x2051")[0]["source"]))
    assert isinstance(loop, ast.For) and ast.unparse(loop.iter) == "tl.range(tl.program_id(0), 3, tl.num_programs(0))"
    assert all(isinstance(s, ast.AnnAssign) for s in outside) and "xoffset = row * XBLOCK" in ast.unparse(loop)


def test_another_use_of_the_programs_number_is_declined() -> None:
    text = calls("softmax_3x2051")[0]["source"].replace("x0 = xindex", "x0 = xindex + tl.program_id(0)")
    with pytest.raises(NotUnderstood, match="another use"):
        walked(parse(text))
