"""Data that is used once passes through the caches without displacing what is used again.

A tensor larger than L2 whose elements are each read or written once cannot be hit again: its lines are marked to be
evicted first and its stores to stream; operands that many elements share are marked to stay. Expected: 1.01x to 1.1x,
more where a shared operand is nearly as large as the cache.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import identity, understood
from kernelopt_bot.playbook.kernel_source import Access, KernelSource, NotUnderstood, access_of
from kernelopt_bot.playbook.launch_space import LaunchConfig, derive
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site


class CacheHints:
    name = "cache_hints"
    citation = ("PTX ISA, cache operators and eviction priorities (ld/st .L1::evict_first, st.cs); "
                "Triton tl.load(eviction_policy), tl.store(cache_modifier)")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or site.total_bytes <= site.roofs.l2_bytes or site.headroom < 1.02:
            return None
        hints = [_hint(site, source, a) for a in source.accesses]
        if not any(h and h != a.eviction for h, a in zip(hints, source.accesses, strict=True)):
            return None
        once = sum(h == "evict_first" for h in hints)
        return Expectation(min(1.03, site.headroom), f"{once} accesses of {site.total_bytes >> 20} MiB are used once")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            for streaming in (True, False):
                body = hinted(site, source, streaming)
                for config in _starts(site)[:3]:
                    yield identity(site, config.blocks, config.num_warps, config.num_stages, self.name,
                                   "evict first what is used once" + (", stores stream" if streaming else ""), body)
        except NotUnderstood:
            return


def hinted(site: Site, source: KernelSource, streaming: bool) -> list[ast.stmt]:
    """The body with eviction policies on loads and, if `streaming`, `.cs` on stores of tensors used once."""
    body = copied(list(source.body))
    for node in (n for s in body for n in ast.walk(s)):
        access = access_of(node) if isinstance(node, ast.Call) else None
        hint = _hint(site, source, access) if access is not None else ""
        if access is None or not isinstance(node, ast.Call) or not hint:
            continue
        keyword, value = "eviction_policy", hint
        if access.kind == "store":
            if not streaming:
                continue
            keyword, value = "cache_modifier", ".cs"
        node.keywords = [*(k for k in node.keywords if k.arg != keyword), ast.keyword(keyword, ast.Constant(value))]
    return body


def _hint(site: Site, source: KernelSource, access: Access) -> str:
    """`evict_first` for a tensor beyond L2 with one access an element, `evict_last` for a shared operand that fits a
    quarter of L2, '' where the facts say neither."""
    iterations = 1
    for prefix in source.dimensions:
        iterations *= site.numel(prefix) or 0
    numel, size = site.tensor_numel(access.pointer), site.tensor_bytes(access.pointer)
    same = [a for a in source.accesses if a.pointer == access.pointer]
    if numel and numel == iterations and len({a.kind for a in same}) == len(same) and size > site.roofs.l2_bytes // 2:
        return "evict_first"
    if access.kind == "load" and 0 < numel < iterations and size * 4 <= site.roofs.l2_bytes and not source.loops:
        return "evict_last"
    return ""


def _starts(site: Site) -> list[LaunchConfig]:
    """The compiler's configurations, else the best of the derived space."""
    given = [LaunchConfig(dict(c.constexprs), c.num_warps, c.num_stages) for c in site.configs]
    space = derive(site)
    return given or ([] if space is None else list(space.all())[:2])


TECHNIQUE = CacheHints()
