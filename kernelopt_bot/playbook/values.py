"""Which value each load of a run sees, and which kernels of it can be moved into those that read them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelopt_bot.playbook.fusion import RunSite
from kernelopt_bot.playbook.inline import definitions, movable, stored_value
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood
from kernelopt_bot.playbook.rewrite import substitute


class Unmovable(NotUnderstood):
    """The kernel at `position` of the run cannot be moved after all."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


@dataclass(frozen=True)
class Node:
    """One call of a run. `buffers`: pointer parameter -> buffer of the run."""

    position: int
    source: KernelSource
    buffers: Mapping[str, str]
    loads: frozenset[str]
    stores: frozenset[str]


@dataclass
class Values:
    """The calls of a run in order, and which of them are to be moved into their consumers."""

    nodes: tuple[Node, ...]
    moved: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, site: RunSite) -> Values:
        """With every kernel marked that looks movable. Raises NotUnderstood."""
        if site.sources is None:
            raise NotUnderstood("a kernel of the run is not of the known shape")
        nodes = []
        for position, (source, call) in enumerate(zip(site.sources, site.run.calls, strict=True)):
            bound = {a.name: p for a, p in zip(call.step.arguments, call.arguments, strict=True) if isinstance(p, str)}
            known = {a.pointer for a in source.accesses}
            pointers = {p for p in source.parameters if source.signature.get(p, "").startswith("*")}
            if pointers - known or pointers != set(bound):
                raise NotUnderstood(f"{source.name}: pointers {sorted(pointers - known)} are used in an unknown way")
            nodes.append(Node(position, source, bound, *site.traffic(position)))
        values = cls(tuple(nodes))
        values.moved = {n.position for n in nodes[:-1] if values._may_move(n, site)}
        return values

    def _may_move(self, node: Node, site: RunSite) -> bool:
        """A producer whose results nothing needs in memory once its consumers compute them."""
        if not movable(node.source) or any(site.run.buffer[b].role == "through" for b in node.stores):
            return False
        try:
            for pointer, buffer in node.buffers.items():
                if buffer in node.stores:
                    stored_value(node.source, pointer)
        except NotUnderstood:
            return False
        return any(node.stores & later.loads for later in self.nodes[node.position + 1:])

    def writer(self, buffer: str, position: int) -> int | None:
        """The call before `position` whose value is in the buffer then; None if it came in."""
        return next((n.position for n in reversed(self.nodes[:position]) if buffer in n.stores), None)

    def check(self, producer: int, consumer: int) -> None:
        """Raises Unmovable if memory that the producer reads has changed when the consumer runs, or changes in it."""
        node, into = self.nodes[producer], self.nodes[consumer]
        for buffer in node.loads:
            writer = self.writer(buffer, producer)
            if writer is not None and writer in self.moved:
                continue
            between = [n.position for n in self.nodes[producer + 1:consumer]
                       if buffer in n.stores and n.position not in self.moved]
            if between:
                raise Unmovable(producer, f"{buffer} is written between {producer} and {consumer}")
            if buffer in into.stores and not (_in_order(node, buffer) and _in_order(into, buffer)):
                raise Unmovable(producer, f"{buffer} is read at other places than the consumer writes")

    def kept(self) -> list[Node]:
        return [n for n in self.nodes if n.position not in self.moved]


def _in_order(node: Node, buffer: str) -> bool:
    """Whether every access of a node to a buffer is at the element of its own index."""
    known = definitions(node.source)
    return all(ast.unparse(substitute(a.index, known)) == "xindex"
               for a in node.source.accesses if node.buffers.get(a.pointer) == buffer)
