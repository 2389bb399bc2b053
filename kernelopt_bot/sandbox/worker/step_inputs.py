"""The inputs of a step's launches: drawn by family, and where the launches find them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker import seeds
from kernelopt_bot.sandbox.worker.buffers import Arena, Block, Slot, read_only
from kernelopt_bot.sandbox.worker.draws import digest, draw, keep_one_largest, nudge
from kernelopt_bot.sandbox.worker.tensors import Scratch


@dataclass(frozen=True)
class Drawn:
    """What one family's inputs are drawn from: equal ones give equal inputs."""

    family: str
    purpose: str
    index: int
    device: torch.device | None = None
    """Of the generator; None: the check's."""
    nudged: bool = False
    """Whether each value is moved by at most one unit in its last place."""


@dataclass(frozen=True)
class Inputs:
    """Of one family."""

    values: Mapping[str, Tensor]
    """By argument; those of shared storages are views of them."""
    blocks: Mapping[str, Block]
    """Storages that all launches see."""
    sums: Mapping[str, tuple[int, int]]
    """Their checksums before any launch."""


class StepInputs:
    """Draws for the arguments that the baseline reads. `home`: where values wait that no launch shares."""

    def __init__(self, slots: Sequence[Slot], device: torch.device, home: torch.device, secret: str,
                 scratch: Scratch) -> None:
        self.slots, self.device, self.home, self.secret, self.scratch = slots, device, home, secret, scratch
        self.loaded = [s for s in slots if s.loaded]
        self.shared = read_only(slots) if home == device else frozenset()
        self.key = seeds.derive(secret, "checksum", 0)
        """Of checksums."""

    def draw(self, drawn: Drawn, into: Mapping[str, Tensor]) -> None:
        """Fill every argument that the baseline reads, `into[name]` of its type or a wider one. A second call draws the
        same."""
        generator = seeds.generator(self.secret, drawn.purpose, drawn.index, drawn.device or self.device)
        for slot in self.loaded:
            index = not slot.dtype.is_floating_point and slot.dtype is not torch.bool
            chosen = "captured" if index and slot.saved is not None else drawn.family
            own_range = slot.stats is None and not slot.dtype.is_floating_point
            known = slot if chosen == "captured" or own_range else replace(slot, saved=None)
            draw(chosen, known.recorded(self.scratch), slot.stats, generator, into[slot.name])
        if drawn.family == "extreme":
            keep_one_largest([into[s.name] for s in self.loaded], generator)
        for slot in self.loaded if drawn.nudged else ():
            nudge(into[slot.name], slot.dtype, generator)

    def there(self, drawn: Drawn) -> Inputs:
        """Where launches find them: what is only read in shared memory, if that is on the device."""
        arena = Arena([s for s in self.slots if s.storage in self.shared], self.device)
        values = {s.name: arena.view(s) if s.storage in self.shared else
                  torch.empty_strided(s.shape, s.stride, dtype=s.dtype, device=self.home) for s in self.loaded}
        self.draw(drawn, values)
        return Inputs(values, arena.blocks, {s: arena.checksum(s, self.key) for s in arena.blocks})

    def digests(self, values: Mapping[str, Tensor]) -> list[int]:
        return [digest(values[s.name], s.dtype) for s in self.loaded]
