from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.playbook.split_reduction import TECHNIQUE, Cut
from tests.playbook.sites import calls, case, grown, interpret, site


@pytest.mark.parametrize(("name", "launches"), [
    ("softmax_3x2051", 2), ("sum_7001", 2), ("rowsum_2x90x33", 2), ("logsumexp_3x4100", 3), ("argmax_3x5001", 2)])
def test_a_launch_a_pass_and_one_for_the_last_result(name: str, launches: int) -> None:
    candidate = next(TECHNIQUE.propose(site(calls(name)[0])))
    assert len(candidate.plan.launches) == launches and "tl.atomic" not in candidate.source


@pytest.mark.parametrize("length", [1, 7, 4096, 65535, 393216])
@pytest.mark.parametrize("block", [8, 1024, 4096])
def test_chunks_are_whole_blocks_that_cover_the_row_and_none_is_empty(length: int, block: int) -> None:
    for extent, rows, programs in ((1, 1, 528), (3, 1, 1056), (4096, 64, 264)):
        cut = Cut.of(length, extent, rows, block, programs)
        if cut is not None:
            assert cut.chunk % block == 0 and (cut.count - 1) * cut.chunk < length <= cut.count * cut.chunk
            assert cut.parts >= cut.count > cut.parts // 2 and cut.count >= 2


def test_kernels_with_rows_enough_are_left_alone() -> None:
    call = calls("softmax_3x2051")[0]
    assert TECHNIQUE.applies(site(call)) is not None
    many = {**call, "source": call["source"].replace("xnumel = 3\n", "xnumel = 528\n")}
    assert TECHNIQUE.applies(site(many)) is None


def test_columns_that_lie_side_by_side_share_a_program() -> None:
    launch = next(TECHNIQUE.propose(site(calls("rowsum_2x90x33")[0]))).plan.launches[0]
    assert int(launch.constexprs["XBLOCK"]) >= 32


def test_what_is_stored_between_passes_is_stored_by_one_chunk() -> None:
    call = calls("l2norm_3x2047")[0]
    before, reduced, after = call["source"].partition("    tmp3 = tl.sum(_tmp3, 1)[:, None]\n")
    assert reduced
    text = f"{before}{reduced}    tl.store(out_ptr1 + (9000 + x0), tmp3, xmask)\n{after}"
    place = site(grown({**call, "source": text}, "2047", "8190"))
    source = next(TECHNIQUE.propose(place)).source
    assert source.count("(9000 + x0)") == 1 and "xmask & (chunk == 0)" in source


def test_statistics_are_shifted_sums_in_every_second_proposal() -> None:
    place = site(grown(calls("layernorm_3x2050")[0], "2050", "20002"))
    sources = [c.source for c in TECHNIQUE.propose(place)]
    assert ["welford_reduce(" in s for s in sources[:3]] == [False, True, False]
    assert all("triton_helpers.welford(gathered_0, gathered_1, gathered_2, 1)" in s for s in sources)


def test_the_largest_elements_place_does_not_vary_with_the_number_of_chunks(tmp_path: Path) -> None:
    call = calls("argmax_3x5001")[0]
    candidates = {c.plan.scratch[0].elements: c for c in TECHNIQUE.propose(site(call))}
    assert len(candidates) > 1
    results = interpret([{**case(call, c), "seeds": (1,)} for c in candidates.values()], tmp_path)
    assert all(r["passed"] and r["worst"] == 0.0 for r in results)
