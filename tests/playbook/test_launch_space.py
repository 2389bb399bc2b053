from __future__ import annotations

import pytest

from kernelopt_bot.playbook.kernel_source import parse
from kernelopt_bot.playbook.launch_space import LaunchConfig, contiguous, derive
from kernelopt_bot.playbook.technique import Site
from tests.playbook.sites import all_calls, calls, site


def grown(name: str, old: int, new: int) -> Site:
    """The captured kernel with one of its sizes written larger: launch arithmetic alone is looked at."""
    call = dict(calls(name)[0])
    call["source"] = call["source"].replace(f"xnumel = {old}\n", f"xnumel = {new}\n")
    return site(call)


@pytest.mark.parametrize("name", all_calls())
def test_everything_listed_is_legal_and_unique(name: str) -> None:
    space = derive(site(all_calls()[name]))
    assert space is not None
    found = list(space.all())
    assert len({c.key for c in found}) == len(found)
    assert all(space.legal(c) for c in found)
    for config in found[:3]:
        near = space.neighbours(config)
        assert all(space.legal(c) and c.key != config.key for c in near)


def test_a_long_pointwise_kernel_gets_whole_lines_and_several_values_a_thread() -> None:
    space = derive(grown("relu_1000", 1000, 1 << 26))
    assert space is not None
    best = next(space.all())
    assert best.blocks["XBLOCK"] >= 512 and 4 <= best.blocks["XBLOCK"] / (32 * best.num_warps) <= 16
    assert space.programs(best) >= 2 * 132


def test_programs_are_not_fewer_than_multiprocessors() -> None:
    space = derive(grown("relu_1000", 1000, 132 * 256))
    assert space is not None
    assert not space.legal(LaunchConfig({"XBLOCK": 4096}, 8)) and space.legal(LaunchConfig({"XBLOCK": 256}, 4))


def test_blocks_divide_an_extent_that_has_no_mask() -> None:
    call = dict(calls("relu_1000")[0])
    call["source"] = call["source"].replace("xindex < xnumel", "tl.full([XBLOCK], True, tl.int1)[:]")
    space = derive(site(call))
    assert space is not None and space.blocks["XBLOCK"] == (1, 2, 4, 8)


def test_registers_bound_what_a_thread_loads() -> None:
    space = derive(grown("relu_1000", 1000, 1 << 26))
    assert space is not None
    assert space.legal(LaunchConfig({"XBLOCK": 4096}, 1)) and space.registers_per_element == 1.0
    batchnorm = derive(site(calls("batchnorm_2x3x128")[0]))
    assert batchnorm is not None and batchnorm.registers_per_element == 1.0


@pytest.mark.parametrize(("name", "prefix"), [("l2norm_3x2047", "r0_"), ("rowsum_2x90x33", "x"), ("relu_1000", "x"),
                                            ("groupnorm_2x4x7x30", "r0_"), ("avgpool2d_22", "r0_")])
def test_the_contiguous_dimension(name: str, prefix: str) -> None:
    assert contiguous(parse(calls(name)[0]["source"])) == prefix
