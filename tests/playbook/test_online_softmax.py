from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.playbook.online_softmax import TECHNIQUE
from tests.playbook.sites import calls, case, interpret, site

NAME = "logsumexp_3x4100"


def changed(old: str, new: str) -> dict[str, Any]:
    call = calls(NAME)[0]
    assert old in call["source"]
    return {**call, "source": call["source"].replace(old, new)}


def test_the_row_is_read_once() -> None:
    source = next(TECHNIQUE.propose(site(calls(NAME)[0]))).source
    assert calls(NAME)[0]["source"].count("tl.load(in_ptr0") == 2 and source.count("tl.load(in_ptr0") == 1


@pytest.fixture(scope="module")
def nonfinite(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Rows with infinities of either sign and nan, for a guarded and an unguarded maximum."""
    unguarded = changed("tmp9 = tl.where(tmp7, tmp8, tmp2)", "tmp9 = tmp2")
    found = []
    for call in (calls(NAME)[0], unguarded):
        candidate = next(TECHNIQUE.propose(site(call)))
        found += [{**case(call, candidate), "seeds": (1,), "nonfinite": v} for v in ("inf", "-inf", "nan")]
    folder: Path = tmp_path_factory.mktemp("nonfinite")
    return interpret(found, folder)


@pytest.mark.parametrize("number", range(6))
def test_infinities_and_nan_come_out_as_in_two_passes(number: int, nonfinite: list[dict[str, Any]]) -> None:
    assert nonfinite[number]["passed"], nonfinite[number]["reason"]


@pytest.mark.parametrize(("old", "new"), [
    ("tmp10 = tmp4 - tmp9", "tmp10 = tmp4 + tmp9"),
    ("tmp11 = libdevice.exp(tmp10)", "tmp11 = libdevice.exp2(tmp10)"),
    ("tmp9 = tl.where(tmp7, tmp8, tmp2)", "tmp9 = tl.where(tmp7, tmp2, tmp8)"),
    ("tmp14 = _tmp13 + tmp12", "tmp14 = _tmp13 - tmp12"),
    ("tmp4 = tl.load(in_ptr0 + (r0_1 + 4100*x0)", "tmp4 = tl.load(in_ptr0 + (r0_1 + 4099*x0)"),
    ("triton_helpers.max2(_tmp2, 1)", "triton_helpers.min2(_tmp2, 1)"),
])
def test_another_sum_is_declined(old: str, new: str) -> None:
    assert TECHNIQUE.applies(site(calls(NAME)[0])) is not None
    assert TECHNIQUE.applies(site(changed(old, new))) is None


@pytest.mark.parametrize("name", ["softmax_3x2051", "l2norm_3x2047", "layernorm_3x2050", "sum_7001"])
def test_kernels_without_the_two_passes_are_left(name: str) -> None:
    assert TECHNIQUE.applies(site(calls(name)[0])) is None
