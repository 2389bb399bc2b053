"""Guarded memory and the arguments of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.buffers import ALIGNMENT, LEAST_GUARD, Arena, Slot, parse_argument
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

CPU = torch.device("cpu")


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, name: str) -> str:
        return str(self._path / name)


def slot(name: str = "a", shape: tuple[int, ...] = (3, 5), offset: int = 0, storage: str = "", **also: Any) -> Slot:
    stride = tuple(torch.empty(shape, device="meta").stride())
    return Slot(name, also.pop("dtype", torch.float32), shape, stride, offset, storage or name, **also)


def test_views_have_the_layout_and_alignment_of_the_original() -> None:
    for offset in (0, 1, 3, 64, 65):
        arena = Arena([slot(offset=offset)], CPU)
        view = arena.view(slot(offset=offset))
        assert view.shape == (3, 5) and view.data_ptr() % ALIGNMENT == offset * 4 % ALIGNMENT
        view.fill_(1.0)
        assert arena.intact() and arena.payload("a").numel() == 60


@pytest.mark.parametrize("place", [*range(-9, 0), -LEAST_GUARD, *range(60, 70), 60 + LEAST_GUARD - 1])
def test_a_byte_written_in_a_guard_is_seen(place: int) -> None:
    arena = Arena([slot()], CPU)
    block = arena.blocks["a"]
    block.memory[block.start + place] = 7
    assert not arena.intact()


def test_arguments_of_one_storage_share_memory() -> None:
    slots = [slot("a", storage="s"), slot("b", offset=5, storage="s"), slot("c")]
    arena = Arena(slots, CPU)
    a, b, c = (arena.view(s) for s in slots)
    a.zero_()
    b.fill_(2.0)
    assert a[1, 0] == 2.0 and not torch.equal(c, a)
    assert arena.payload("s").numel() == 80


def test_promotion_widens_floats_only() -> None:
    slots = [slot(), slot("i", dtype=torch.int32)]
    arena = Arena(slots, CPU, promoted=True)
    assert arena.view(slots[0]).dtype is torch.float64 and arena.view(slots[1]).dtype is torch.int32
    with pytest.raises(ValueError, match="different types"):
        Arena([slot(storage="s"), slot("b", storage="s", dtype=torch.int32)], CPU, promoted=True)


def test_the_checksum_sees_changes_and_exchanges() -> None:
    arena = Arena([slot()], CPU)
    data = arena.payload("a")
    data.copy_(torch.arange(60, dtype=torch.uint8))
    before = arena.checksum("a", 12345)
    data[[3, 4]] = data[[4, 3]]
    assert arena.checksum("a", 12345) != before
    data[[3, 4]] = data[[4, 3]]
    assert arena.checksum("a", 12345) == before


def test_recorded_values_come_back(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    base = torch.randn(4, 6)
    saved = parse_argument(tensors.save(folder, base[1:, ::2]), "x")
    assert isinstance(saved, Slot) and torch.equal(saved.recorded(folder), base[1:, ::2])
    (tmp_path / saved.saved["file"]).write_bytes(b"short")  # type: ignore[index]
    with pytest.raises(WorkerFault, match="there are no 96 bytes"):
        saved.recorded(folder)


def test_every_form_of_an_argument_is_understood(tmp_path: Path) -> None:
    meta = tensors.meta(torch.empty(2, 3))
    only = parse_argument({"meta": meta, "stats": None}, "x")
    assert isinstance(only, Slot) and only.recorded(Folder(tmp_path)).device.type == "meta" and only.saved is None
    call = {"tensor": meta, "value": None, "stats": {"min": 0}, "saved": None, "storage": "buf0"}
    described = parse_argument(call, "x")
    assert isinstance(described, Slot) and described.storage == "buf0" and described.stats == {"min": 0}
    assert parse_argument({"tensor": None, "value": 7, "stats": None, "saved": None}, "x") == 7
    assert parse_argument(8, "x") == 8
    with pytest.raises(WorkerFault, match="not understood"):
        parse_argument({"meta": {"dtype": "float99"}}, "x")


def test_equal_files_are_not_aliases(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    a, b = (parse_argument(tensors.save(folder, torch.zeros(4)), n) for n in "ab")
    assert isinstance(a, Slot) and isinstance(b, Slot) and a.storage != b.storage
