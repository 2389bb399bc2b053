"""Another tile, warp count and pipeline depth for the unchanged kernel.

Inductor tries a short list of configurations by heuristics; the best one depends on row length, width of the type
and number of streams. Expected: 1.02x to 1.10x on pointwise kernels, up to 2x where a reduction over a short or a
strided dimension got a block that wastes lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import identity
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.launch_space import LaunchConfig, LaunchSpace, derive
from kernelopt_bot.playbook.technique import Expectation, Site

_PROPOSED = 16
_AT_FLOOR = 1.05
"""Headroom below which a step is left alone: within the noise of its measured floor."""


class LaunchConfiguration:
    name = "launch_configuration"
    citation = ("Coordinate descent over launch parameters: Inductor's coordinate_descent_tuning "
                "(torch/_inductor/runtime/coordinate_descent_tuner.py); Volkov, Better performance at lower "
                "occupancy, GTC 2010")

    def applies(self, site: Site) -> Expectation | None:
        space = derive(site)
        if space is None or site.headroom < _AT_FLOOR:
            return None
        tried = baseline(site)
        new = next((c for c in space.all() if c.key not in tried), None)
        if new is None:
            return None
        gain = min(1.05, site.headroom)
        return Expectation(gain, f"{len(tried)} configurations tried by the compiler, others are legal")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        space = derive(site)
        if space is None:
            return
        seen = set(baseline(site))
        for config in self._order(site, space):
            if config.key in seen:
                continue
            seen.add(config.key)
            if len(seen) > _PROPOSED + len(site.configs):
                return
            try:
                yield self.candidate(site, config)
            except NotUnderstood:
                return

    def candidate(self, site: Site, config: LaunchConfig) -> KernelCandidate:
        """The baseline kernel under `config`. Raises NotUnderstood for a grid type that is not known."""
        return identity(site, config.blocks, config.num_warps, config.num_stages, self.name,
                        f"unchanged code with {dict(config.blocks)}, {config.num_warps} warps")

    @staticmethod
    def _order(site: Site, space: LaunchSpace) -> Iterator[LaunchConfig]:
        """The best of each tile shape by score first, then the neighbourhood of what the compiler tried."""
        shapes: set[tuple[tuple[str, int], ...]] = set()
        for config in space.all():
            shape = config.key[0]
            if shape not in shapes and len(shapes) < _PROPOSED // 2:
                shapes.add(shape)
                yield config
        for start in baseline(site).values():
            if space.legal(start):
                yield from space.neighbours(start)


def baseline(site: Site) -> dict[object, LaunchConfig]:
    """The compiler's own configurations by key."""
    found = (LaunchConfig(dict(c.constexprs), c.num_warps, c.num_stages) for c in site.configs)
    return {c.key: c for c in found}


TECHNIQUE = LaunchConfiguration()
