"""What a launch left behind: kept where there is room for it, and compared piece by piece on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.buffers import GUARD_BYTE, Arena, Contents, Slot, arena_bytes, read_only, spans
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

SECOND_POISON = 0x5A
PIECE = 1 << 25
"""Bytes compared at a time."""
WORKING = 1 << 29
"""Bytes that comparisons and draws take beside the buffers: some 14 float64 temporaries of `precision.CHUNK`."""
ALWAYS = 4 << 30
"""Bytes that gate 2 may take whatever the program's size: a small model's step is not refused for its guard bands."""


@dataclass(frozen=True)
class Room:
    """Device memory in bytes: what gate 2 needs in the chosen way, what it may take, and where results are kept."""

    needed: int
    limit: int | None
    home: torch.device
    redrawn: bool = False
    """Whether inputs are drawn once for the reference and once more for the others: there is no room for both."""


def room(
    slots: Sequence[Slot], device: torch.device, *, scratch_bytes: int, program_bytes: int | None, promoted: bool,
) -> Room:
    """Where inputs, results and references wait: on the device if there is room, else on the host.

    On the device what is only read lies there once, for all launches; each launch has fresh memory for the rest.

    The limit is the peak of the whole program plus twice the step's buffers, and never more than is free;
    `program_bytes` None means that the program's peak is not known. `promoted`: there is a float64 reference.
    Raises WorkerFault out_of_memory where even keeping everything on the host does not suffice.
    """
    payload = sum(size for _, size in spans(slots).values())
    stored = {s.storage for s in slots if s.stored}
    shared = read_only(slots)
    inputs = arena_bytes([s for s in slots if s.storage in shared])
    values = sum(s.extent * s.dtype.itemsize for s in slots if s.loaded and s.storage not in shared)
    own = arena_bytes([s for s in slots if s.storage not in shared]) + scratch_bytes
    result = arena_bytes([s for s in slots if s.storage in stored])
    wide = wide_results = 0
    if promoted:
        try:
            wide = arena_bytes(slots, promoted=True, bare=True)
            wide_results = sum(size for name, (_, size) in spans(slots, True).items() if name in stored)
        except ValueError:
            pass
    limit = None if program_bytes is None else max(ALWAYS, program_bytes + 2 * payload)
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + unused
        limit = free if limit is None else min(limit, free)
    # The baseline's first result stays, the candidate's joins it once the reference is no longer needed.
    later = own + result + max(wide_results, result)
    for redrawn, resident in ((False, max(wide, later)), (True, max(wide - inputs - values, later))):
        needed = inputs + values + resident + WORKING
        if limit is None or needed <= limit:
            return Room(needed, limit, device, redrawn)
    streamed = max(inputs + own, wide) + WORKING
    if limit is not None and streamed > limit:
        raise WorkerFault("out_of_memory", f"the step's check needs {streamed} bytes of device memory, "
                          f"{limit} are allowed (buffers of {payload} bytes)")
    return Room(streamed, limit, torch.device("cpu"))


@dataclass(frozen=True)
class Repeated:
    """Two launches on the same inputs, with different poison in what is only written."""

    first: Contents
    """The written storages after the first launch, on `Room.home`."""
    written: Mapping[str, Tensor | None]
    """Storage that the step only writes -> whether each byte was written, on the host; None: all of it."""
    same: bool
    """Whether both launches wrote the same bits."""
    untouched: bool
    intact: bool


def pieces(*tensors: Tensor, device: torch.device) -> Iterator[tuple[Tensor, ...]]:
    """Flat tensors of equal length, `PIECE` elements at a time, on `device`."""
    for start in range(0, tensors[0].numel(), PIECE):
        yield tuple(t[start : start + PIECE].to(device) for t in tensors)


def equal(a: Contents, b: Contents, storages: Sequence[str], device: torch.device) -> bool:
    """Whether the bytes of `storages` are the same."""
    return all(torch.equal(x, y) for s in storages for x, y in pieces(a.payload(s), b.payload(s), device=device))


def repeated(
    launch: Callable[[int], tuple[Arena, bool]], slots: Sequence[Slot], device: torch.device, home: torch.device,
    look: Callable[[Arena], None] = lambda arena: None,
) -> Repeated:
    """Launch twice. `launch` takes the poison and returns the arena and whether inputs are as they were; `look` sees
    the first arena while it is on the device. Raises WorkerFault."""
    read = {s.storage for s in slots if s.loaded}
    stored = sorted({s.storage for s in slots if s.stored})
    arena, untouched = launch(GUARD_BYTE)
    intact = arena.intact()
    look(arena)
    first = arena.kept(stored, home)
    del arena
    second, again = launch(SECOND_POISON)
    same = equal(first, second, [s for s in stored if s in read], device)
    written: dict[str, Tensor | None] = {}
    for storage in (s for s in stored if s not in read):
        written[storage], alike = _written(first.payload(storage), second.payload(storage), device)
        same = same and alike
    return Repeated(first, written, same, untouched and again, intact and second.intact())


def _written(first: Tensor, second: Tensor, device: torch.device) -> tuple[Tensor | None, bool]:
    """(which bytes both launches wrote, on the host, or None for all; whether they wrote the same)."""
    same, done = True, 0
    marks: list[Tensor] | None = None
    for a, b in pieces(first, second, device=device):
        mark = (a != GUARD_BYTE) | (b != SECOND_POISON)
        same = same and not bool(((a != b) & mark).any())
        if marks is None and not bool(mark.all()):
            marks = [torch.ones(done, dtype=torch.bool)]
        if marks is not None:
            marks.append(mark.cpu())
        done += mark.numel()
    return None if marks is None else torch.cat(marks), same


def coverage(base: Repeated, ours: Repeated, device: torch.device) -> tuple[int, int]:
    """(bytes that only the baseline wrote, bytes that only the candidate wrote)."""
    missed = outside = 0
    for storage, a in base.written.items():
        b = ours.written[storage]
        if a is None and b is not None:
            missed += b.numel() - int(b.count_nonzero())
        elif b is None and a is not None:
            outside += a.numel() - int(a.count_nonzero())
        elif a is not None and b is not None:
            for x, y in pieces(a, b, device=device):
                missed += int((x & ~y).count_nonzero())
                outside += int((y & ~x).count_nonzero())
    return missed, outside
