from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.kept_rows import TECHNIQUE, kept, repeated
from kernelopt_bot.playbook.kernel_source import parse
from tests.playbook.sites import calls, grown, site


def text(name: str, block: int, count: int) -> str:
    return "\n".join(ast.unparse(s) for s in kept(parse(calls(name)[0]["source"]), block, count))


def test_a_row_that_fits_is_read_once_and_has_no_loop() -> None:
    found = text("softmax_3x2051", 1024, 3)
    assert "for " not in found and found.count("tl.load(in_ptr0") == 3 and found.count("tl.store(") == 3


def test_of_a_longer_row_the_first_blocks_are_kept() -> None:
    found = text("softmax_3x2051", 512, 2)
    assert found.count("tl.range(1024, r0_numel, R0_BLOCK)") == 2
    assert found.count("tl.load(in_ptr0") == 2 + 2


def test_operands_that_one_pass_reads_are_not_kept() -> None:
    source = parse(calls("layernorm_3x2050")[0]["source"])
    assert [pointer for pointer, _, _ in repeated(source)] == ["in_ptr0"]


def test_half_precision_is_kept_as_it_was_loaded() -> None:
    found = text("softmax_half_3x1500", 512, 3)
    assert "kept_0_0 = tl.load(in_ptr0" in found and "kept_0_0.to(tl.float32)" in found
    assert not any(line.strip().startswith("kept_") and ".to(" in line for line in found.splitlines())


@pytest.mark.parametrize(("length", "share"), [("24576", "100%"), ("65535", "69%")])
def test_the_share_that_registers_hold_decides_what_is_expected(length: str, share: str) -> None:
    found = TECHNIQUE.applies(site(grown(calls("l2norm_3x2047")[0], "2047", length)))
    assert found is not None and share in found.reason


def test_too_short_and_far_too_long_rows_are_left() -> None:
    assert TECHNIQUE.applies(site(calls("l2norm_3x2047")[0])) is None
    assert TECHNIQUE.applies(site(grown(calls("l2norm_3x2047")[0], "2047", "393215"))) is None


def test_a_kernel_without_a_mask_gets_blocks_that_divide_its_rows() -> None:
    call = grown(calls("l2norm_3x2047")[0], "2047", "6144")
    call["source"] = call["source"].replace(
        "r0_mask = r0_index < r0_numel", "r0_mask = tl.full([R0_BLOCK], True, tl.int1)[None, :]")
    blocks = {c.plan.launches[0].constexprs["R0_BLOCK"] for c in TECHNIQUE.propose(site(call))}
    assert blocks == {2048, 1024}
