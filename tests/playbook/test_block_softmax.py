from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.block_softmax import maximum_first
from kernelopt_bot.playbook.rewrite import statements

START = "m = tl.full([XBLOCK, R0_BLOCK], float('-inf'), tl.float32)\ns = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)\n"
UPDATE = "n, t = triton_helpers.online_softmax_combine(m, s, x, False)"


def after(text: str) -> list[str]:
    return [ast.unparse(s) for s in maximum_first(statements(text))]


def test_an_update_of_fresh_accumulators_is_the_value_and_a_weight_of_one() -> None:
    assert after(START + UPDATE)[2:] == ["n = x", "t = s + 1.0"]


@pytest.mark.parametrize("start", [START.replace("'-inf'", "'inf'"), START.replace("tl.zeros", "tl.ones"), ""])
def test_other_accumulators_keep_their_update(start: str) -> None:
    assert after(start + UPDATE)[-1] == UPDATE.replace("n, t", "(n, t)") or after(start + UPDATE)[-1] == UPDATE
