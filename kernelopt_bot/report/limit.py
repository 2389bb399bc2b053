"""Making a report fit: the longest parts give way first, and it says so."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import replace

from kernelopt_bot.report.blocks import Block, Code, Details, Notice, Table, Verdicts
from kernelopt_bot.report.phrases import phrase

_KEEP_ROWS = 3
_KEEP_LINES = 5

Path = tuple[int, ...]
Blocks = tuple[Block, ...]
Render = Callable[[Blocks], str]


def fit(blocks: Blocks, render: Render, limit: int) -> str:
    """`render(blocks)` in at most `limit` characters.

    While it is too long, the longest tables, verdicts and code lose half of their rows or lines; when nothing more can
    shrink, whole blocks go, from the end. The first block after the title then says that it was cut.
    """
    text = render(blocks)
    if len(text) <= limit:
        return text
    while True:
        sizes = {place: len(render((b,))) for place, b in _walk(blocks) if _halved(b) is not b}
        if not sizes:
            break
        # All that are about as long as the longest, at once: a run of many targets has thousands of tables.
        for place in (p for p, size in sizes.items() if 2 * size >= max(sizes.values())):
            blocks = _put(blocks, place, _halved(_get(blocks, place)))
        text = render(_noted(blocks, "long tables and code are cut"))
        if len(text) <= limit:
            return text
    fits = bisect.bisect_right(range(1, len(blocks)), limit, key=lambda end: len(render(_without(blocks, end))))
    text = render(_without(blocks, max(1, fits)))
    return text if len(text) <= limit else text[:limit]


def _without(blocks: Blocks, end: int) -> Blocks:
    left_out = f"the last {len(blocks) - end} of {len(blocks)} parts are left out"
    return _noted(blocks[:end], f"long tables and code are cut, and {left_out}")


def _noted(blocks: Blocks, what: str) -> Blocks:
    return (*blocks[:1], Notice("warning", phrase("truncated", what=what)), *blocks[1:])


def _walk(blocks: Blocks, at: Path = ()) -> Iterator[tuple[Path, Block]]:
    for i, block in enumerate(blocks):
        yield (*at, i), block
        if isinstance(block, Details):
            yield from _walk(block.blocks, (*at, i))


def _halved(block: Block) -> Block:
    """The block with half of its rows or lines, or the very same block where it is short already."""
    match block:
        case Table() if len(block.rows) > _KEEP_ROWS:
            keep = max(_KEEP_ROWS, len(block.rows) // 2)
            return replace(block, rows=block.rows[:keep], cut=block.cut + len(block.rows) - keep)
        case Verdicts() if len(block.rows) > _KEEP_ROWS:
            keep = max(_KEEP_ROWS, len(block.rows) // 2)
            return replace(block, rows=block.rows[:keep], cut=block.cut + len(block.rows) - keep)
        case Code():
            lines = block.text.splitlines()
            if len(lines) <= _KEEP_LINES:
                return block
            keep = max(_KEEP_LINES, len(lines) // 2)
            return replace(block, text="\n".join(lines[:keep]), cut=block.cut + len(lines) - keep)
    return block


def _get(blocks: Blocks, place: Path) -> Block:
    block = blocks[place[0]]
    return _get(block.blocks, place[1:]) if len(place) > 1 and isinstance(block, Details) else block


def _put(blocks: Blocks, place: Path, new: Block) -> Blocks:
    first, rest = place[0], place[1:]
    old = blocks[first]
    if rest and isinstance(old, Details):
        new = replace(old, blocks=_put(old.blocks, rest, new))
    return (*blocks[:first], new, *blocks[first + 1 :])
