from __future__ import annotations

import pytest

from kernelopt_bot.playbook.carried_scan import TECHNIQUE, scan_of
from kernelopt_bot.playbook.kernel_source import NotUnderstood, parse
from tests.playbook.sites import calls, site

TORCH = ["torch2.11", "torch2.13"]


@pytest.mark.parametrize("torch", TORCH)
@pytest.mark.parametrize("name", ["cumsum_3x2100", "cumprod_2x3072", "reverse_cumsum_2x1500", "masked_cumsum_2x1537"])
def test_scans_of_both_versions_are_recognised(name: str, torch: str) -> None:
    assert scan_of(parse(calls(name, torch)[0]["source"])).scanned.startswith("tmp")


def test_a_row_that_fits_one_block_has_no_loop_and_no_carry() -> None:
    proposed = list(TECHNIQUE.propose(site(calls("cumsum_3x2100")[0])))
    assert "for " not in proposed[0].source and "tl.sum" not in proposed[0].source
    assert proposed[0].plan.launches[0].grid == ("3",)


def test_a_longer_row_is_carried_by_totals_of_its_blocks() -> None:
    looped = [c for c in TECHNIQUE.propose(site(calls("cumsum_3x2100")[0])) if "for " in c.source]
    assert looped
    for candidate in looped:
        assert "select_one" not in candidate.source and candidate.source.count("tl.sum(") == 1


def test_products_are_carried_by_products() -> None:
    looped = [c for c in TECHNIQUE.propose(site(calls("cumprod_2x3072")[0])) if "for " in c.source]
    assert looped and all("triton_helpers.prod(" in c.source and "tl.sum(" not in c.source for c in looped)


def test_a_row_of_whole_blocks_has_no_mask() -> None:
    looped = [c for c in TECHNIQUE.propose(site(calls("cumprod_2x3072")[0]))
              if c.plan.launches[0].constexprs["R0_BLOCK"] == 1024]
    assert looped and "r0_mask" not in looped[0].source


@pytest.mark.parametrize(("old", "new"), [
    ("arg0_0 + arg1_0", "arg1_0 + arg0_0"), ("arg0_0 + arg1_0", "arg0_0 - arg1_0"),
    ("rbase == (RBLOCK - 1)", "rbase == 0"), ("roffset > 0", "roffset > 1"),
    ("tl.range(0, r0_numel", "tl.range(1, r0_numel"),
    ("tmp2 = tl.broadcast_to(tmp1,", "tmp2 = tl.broadcast_to(tmp1 + roffset,")])
def test_a_scan_of_another_form_is_refused(old: str, new: str) -> None:
    text = calls("cumsum_3x2100")[0]["source"]
    assert old in text
    with pytest.raises(NotUnderstood):
        scan_of(parse(text.replace(old, new)))
    assert TECHNIQUE.applies(site({**calls("cumsum_3x2100")[0], "source": text.replace(old, new)})) is None


def test_short_rows_are_left_to_other_techniques() -> None:
    assert TECHNIQUE.applies(site(calls("cumsum_3x300")[0])) is None
