"""What each technique must have changed: the candidates themselves are verified in test_candidates.py."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernelopt_bot.playbook.technique import BaselineConfig, Technique, techniques
from tests.playbook.examples import SMALL_CACHE
from tests.playbook.sites import calls, site

BY_NAME = {t.name: t for t in techniques()}


def first(technique: str, name: str, number: int = 0) -> str:
    return next(BY_NAME[technique].propose(site(calls(name)[number]))).source


@pytest.mark.parametrize("name", ["softmax_3x2051", "l2norm_3x2047", "layernorm_3x2050", "rmsnorm_2x4096"])
def test_persistent_reductions_read_each_row_once_and_have_no_loop(name: str) -> None:
    before, after = calls(name)[0]["source"], first("persistent_reduction", name)
    assert "for " in before and "for " not in after
    assert before.count("tl.load(in_ptr0") == 2 and after.count("tl.load(in_ptr0") == 1


def test_persistent_reductions_compute_welford_as_two_sums() -> None:
    after = first("persistent_reduction", "layernorm_3x2050")
    assert "welford" not in after and after.count("tl.sum(") == 2


def test_persistent_reductions_leave_rows_that_do_not_fit_registers() -> None:
    call = calls("l2norm_3x2047")[0]
    longer = {**call, "source": call["source"].replace("2047", "65535")}
    assert BY_NAME["persistent_reduction"].applies(site(longer)) is None
    assert BY_NAME["aligned_rows"].applies(site(longer)) is not None


@pytest.mark.parametrize(("old", "new"), [("2047", "2048"), ("2047", "200")])
def test_aligned_rows_leave_aligned_and_short_rows(old: str, new: str) -> None:
    call = calls("l2norm_3x2047")[0]
    assert BY_NAME["aligned_rows"].applies(site({**call, "source": call["source"].replace(old, new)})) is None


def test_reversed_passes_walk_every_second_loop_backwards() -> None:
    source = first("reversed_passes", "softmax_3x2051")
    assert source.count("(2051 + R0_BLOCK - 1) // R0_BLOCK * R0_BLOCK - R0_BLOCK - r0_walked") == 1
    assert source.count("tl.range(0, r0_numel, R0_BLOCK)") == 2


def test_reversed_passes_expect_less_of_longer_rows() -> None:
    call = calls("l2norm_3x2047")[0]
    gains: list[float | None] = []
    for length in ("65535", "393215", "99999999"):
        longer = json.loads(json.dumps(call).replace("2047", length))
        found = BY_NAME["reversed_passes"].applies(site(longer))
        gains.append(found.gain if found is not None else None)
    assert gains[0] is not None and gains[1] is not None and gains[0] > gains[1] > 1.0 and gains[2] is None


def test_grid_division_leaves_no_division_of_elements() -> None:
    source = first("grid_division", "bias_gelu_2x3x7x30")
    assert "xindex //" not in source and "xindex %" not in source and "xrow % 3" in source


def test_grid_division_keeps_a_mask_only_where_rows_end_inside_a_block() -> None:
    assert "xcolumn < 210" in first("grid_division", "bias_gelu_2x3x7x30")
    assert "xcolumn < 128" not in first("grid_division", "batchnorm_2x3x128")


def test_serial_reductions_walk_the_window_in_one_thread() -> None:
    source = first("serial_reduction", "maxpool3d_5")
    assert "tl.static_range(0, 27)" in source and "triton_helpers.max2" not in source and "r0_mask" not in source


def test_serial_reductions_leave_contiguous_rows() -> None:
    assert BY_NAME["serial_reduction"].applies(site(calls("layernorm_9x200")[0])) is None


def test_multi_row_tiles_do_not_repeat_what_the_compiler_tried() -> None:
    place = site(calls("layernorm_9x200")[0])
    technique = BY_NAME["multi_row_tiles"]
    launches = [c.plan.launches[0] for c in technique.propose(place)]
    tried = BaselineConfig(dict(launches[0].constexprs), launches[0].num_warps, 1)  # type: ignore[arg-type]
    again = [c.plan.launches[0] for c in technique.propose(replace(place, configs=(tried,)))]
    assert launches[0] not in again and launches[1:] == again


def test_cache_hints_need_more_data_than_the_cache_holds() -> None:
    technique: Technique = BY_NAME["cache_hints"]
    call = calls("relu_1000")[0]
    assert technique.applies(site(call)) is None
    place = site(call, roofs=SMALL_CACHE)
    assert technique.applies(place) is not None
    source = next(technique.propose(place)).source
    assert "eviction_policy='evict_first'" in source and "cache_modifier='.cs'" in source


def test_launch_configurations_are_new_and_of_the_same_code() -> None:
    place = site(calls("softmax_3x2051")[0])
    tried = BaselineConfig({"XBLOCK": 1, "R0_BLOCK": 2048}, 16, 1)
    found = list(BY_NAME["launch_configuration"].propose(replace(place, configs=(tried,))))
    assert len({c.source for c in found}) == 1 and len({c.id for c in found}) == len(found) > 4
    launches = [c.plan.launches[0] for c in found]
    assert (tried.constexprs, 16, 1) not in [(x.constexprs, x.num_warps, x.num_stages) for x in launches]
