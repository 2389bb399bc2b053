"""Tiles of rows and of matrices: what they change, what they refuse, and indices of 64 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.playbook import layout_tiles, row_tiles, separable_windows
from kernelopt_bot.playbook.kernel_source import NotUnderstood, parse
from kernelopt_bot.playbook.technique import Technique
from tests.playbook.sites import calls, case, cubins, interpret, site

WIDE: tuple[tuple[Technique, str], ...] = (
    (row_tiles.TECHNIQUE, "maxpool1d_2x1100"), (row_tiles.TECHNIQUE, "cat_2x5x23x23"),
    (row_tiles.TECHNIQUE, "pad_2x3x9x70"), (layout_tiles.TECHNIQUE, "channels_first_2x70x9x8"),
    (separable_windows.TECHNIQUE, "avgpool2d_11_23x300"), (separable_windows.TECHNIQUE, "maxpool3d_dilated_7x7x24"))


def widened(call: dict[str, Any]) -> dict[str, Any]:
    """The kernel with the indices of 64 bits that Inductor gives to tensors of 2^31 elements and more."""
    text = call["source"]
    for axis, prefix in enumerate("xy"):
        block = f"{prefix.upper()}BLOCK"
        text = text.replace(f"tl.program_id({axis}) * {block}", f"tl.program_id({axis}).to(tl.int64) * {block}")
        for shape in ("[:]", "[:, None]", "[None, :]"):
            text = text.replace(f"{prefix}offset + tl.arange(0, {block}){shape}",
                                f"{prefix}offset + tl.arange(0, {block}){shape}.to(tl.int64)")
    assert text != call["source"]
    return {**call, "source": text}


def test_indices_of_64_bits_stay_what_they_were(tmp_path: Path) -> None:
    cases = []
    for technique, name in WIDE:
        call = widened(calls(name)[0])
        candidate = next(technique.propose(site(call)))
        assert "tl.int64" in candidate.source
        cases.append({**case(call, candidate), "seeds": (1,)})
    assert [r["reason"] for r in interpret(cases, tmp_path)] == [""] * len(cases)
    assert [r.get("error", "") for r in cubins(cases, tmp_path)] == [""] * len(cases)


def test_an_index_that_outgrows_32_bits_along_a_row_keeps_64(tmp_path: Path) -> None:
    call = widened(calls("pad_2x3x9x70")[0])
    source = parse(call["source"])
    assert row_tiles.short_columns(source, row_tiles.rows_of(source))
    far = parse(call["source"].replace("x0 + 70*x1", "99999999*x0 + 70*x1"))
    assert not row_tiles.short_columns(far, row_tiles.rows_of(far))


def test_a_stretch_inside_every_bound_is_read_without_masks() -> None:
    source = next(row_tiles.TECHNIQUE.propose(site(calls("maxpool1d_2x1100")[0]))).source
    quick, slow = source.split("else:")
    assert "if (xstretch >= 4) & (xstretch + 256 <= 1083):" in quick
    assert quick.count("tl.load(") == slow.count("tl.load(") == 8
    assert quick.count("other=") == 0 and slow.count("other=") == 8
    assert quick.count("propagate_nan=tl.PropagateNan.ALL") == 7


def test_a_stretch_of_one_part_of_a_concatenation_reads_that_part_alone() -> None:
    source = next(row_tiles.TECHNIQUE.propose(site(calls("cat_2x5x23x23")[0]))).source
    first, *others = source.split("elif ")
    assert "in_ptr1" not in first.split("if (x1")[1]
    assert any("in_ptr0" not in part.split("else:")[0] for part in others)


def test_row_numbers_are_scalars_or_one_a_row() -> None:
    source = next(row_tiles.TECHNIQUE.propose(site(calls("pad_2x3x9x70")[0]))).source
    assert "xindex" not in source and "x1 = xrow % 11" in source and "x0 = xcolumn" in source


@pytest.mark.parametrize("name", ["relu_1000", "softmax_9x100", "transpose_2x33x17", "multiply_in_place_7x50"])
def test_kernels_without_rows_are_left_alone(name: str) -> None:
    assert row_tiles.TECHNIQUE.applies(site(calls(name)[0])) is None


@pytest.mark.parametrize("change", [("x4)", "x4 + XBLOCK)"), ("in_ptr0 + (", "in_ptr0 + (xindex + ")])
def test_a_flat_index_that_is_used_otherwise_is_refused(change: tuple[str, str]) -> None:
    text = calls("pad_2x3x9x70")[0]["source"]
    assert change[0] in text
    source = parse(text.replace(*change))
    with pytest.raises(NotUnderstood):
        row_tiles.tiled(source, row_tiles.rows_of(source), 8, 128)


@pytest.mark.parametrize("name", ["transpose_2x33x17", "channels_last_2x5x6x7", "channels_first_2x70x9x8"])
def test_a_tile_lies_in_one_matrix(name: str) -> None:
    source = next(layout_tiles.TECHNIQUE.propose(site(calls(name)[0]))).source
    assert "yindex" not in source and "y0 = matrix_row" in source and "y1 = matrix_number" in source


@pytest.mark.parametrize("name", ["relu_1000", "pad_2x3x9x70", "softmax_9x100"])
def test_kernels_of_one_dimension_are_no_layout_copies(name: str) -> None:
    assert layout_tiles.TECHNIQUE.applies(site(calls(name)[0])) is None
