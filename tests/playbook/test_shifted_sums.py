from __future__ import annotations

import pytest

from kernelopt_bot.playbook.shifted_sums import TECHNIQUE
from tests.playbook.sites import calls, site


@pytest.mark.parametrize("name", ["layernorm_3x2050", "layernorm_2x9001"])
def test_no_division_is_left_in_the_loop(name: str) -> None:
    call = calls(name)[0]
    source = next(TECHNIQUE.propose(site(call))).source
    assert "welford_reduce" not in source and "welford_combine" not in source
    loop = source.split("    for r0_offset", 2)[1].split("triton_helpers.welford(")[0]
    assert "/" not in loop and "_shift = tl.where(roffset == 0" in loop


@pytest.mark.parametrize("name", ["softmax_3x2051", "layernorm_9x200", "rmsnorm_2x4096", "relu_1000"])
def test_kernels_without_a_running_variance_are_left(name: str) -> None:
    assert TECHNIQUE.applies(site(calls(name)[0])) is None


def test_an_update_of_another_form_is_left() -> None:
    call = calls("layernorm_3x2050")[0]
    other = {**call, "source": call["source"].replace("tmp2_weight, roffset == 0", "tmp2_weight, False")}
    assert other["source"] != call["source"] and TECHNIQUE.applies(site(other)) is None
