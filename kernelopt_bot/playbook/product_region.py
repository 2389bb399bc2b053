"""A matrix product and the kernel after it as one kernel: the sums never leave the registers.

The vendor writes the product, and the compiler's kernel reads it back; here a program computes a tile and goes on with
it: element by element, or along whole rows where a row fits one tile (softmax, norms, sums). Expected: the time of the
second kernel, the product's own time unchanged; what a vendor's product does better than ours is for the race to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import Function
from kernelopt_bot.playbook.epilogue import Epilogue, alone, body, epilogue_of
from kernelopt_bot.playbook.fusion import FusedLaunch, RunSite, candidate
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.product import Product, product_of, tile_code
from kernelopt_bot.playbook.rewrite import statements
from kernelopt_bot.playbook.technique import Expectation

LEAST_GAIN = 1.02
LEAST_SIDE = 16
"""Rows, columns and depth below which `tl.dot` has no instruction to use."""
FAR = 1.5
"""Times of its floor from which a vendor's product alone is worth a try."""
WEAK = 2
"""Tiles that are also proposed in plain TF32: fewer than the candidates that go to gate 2, where they may all fail."""
MOST_SUMS = 16384
"""Elements of a tile: 64 float32 registers a thread in 8 warps."""
_HALF_TILES = ((128, 128, 64, 8, 3), (128, 64, 64, 4, 4), (64, 64, 64, 4, 4), (128, 256, 64, 8, 3), (64, 32, 64, 4, 4))
_SINGLE_TILES = ((128, 128, 32, 8, 3), (128, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 32, 32, 4, 4), (32, 32, 32, 4, 4))
"""(rows, columns, depth, warps, stages) of a program."""
_MOST_BATCHES = 65535
"""Largest extent of the grid's second axis (CUDA C++ Programming Guide, compute capabilities)."""


class ProductEpilogue:
    name = "product_epilogue"
    citation = ("Epilogue fusion: Thakkar et al., CUTLASS 3; a whole row a tile: Dao, FlashAttention-2, 2023; three "
                "TF32 products: Ootomo and Yokota, 2022")

    def applies(self, site: RunSite) -> Expectation | None:
        try:
            product, epilogue = _facts(site)
        except NotUnderstood:
            return None
        if epilogue is None:
            return _alone(site, product)
        vendor_us, after_us = site.call_us(0), site.call_us(1)
        # The vendor's store and the kernel's load of the product are gone; what else the kernel moves stays.
        rest_us = after_us * site.share(epilogue.loads, epilogue.stores, product.out)
        gain = (vendor_us + after_us) / (vendor_us + rest_us)
        if gain < LEAST_GAIN:
            return None
        sizes = f"{product.m} by {product.n} by {product.k}"
        return Expectation(gain, f"the product of {sizes} is not written and read back")

    def propose(self, site: RunSite) -> Iterator[KernelCandidate]:
        try:
            product, epilogue = _facts(site)
        except NotUnderstood:
            return
        vendor = site.run.vendor
        # By default PyTorch lets vendors' convolutions round float32 to TF32, products not: gate 2 finds out.
        weak = product.element == "fp32" and vendor is not None and vendor.function.endswith(".convolution")
        for number, (rows, columns, depth, warps, stages) in enumerate(_tiles(product, epilogue)):
            for precision in ("tf32x3", "tf32") if weak and number < WEAK else ("tf32x3",):
                yield _candidate(site, product, epilogue, (rows, columns, depth), warps, stages, precision)


def _alone(site: RunSite, product: Product) -> Expectation | None:
    """A product without a kernel after it: worth a try in float32, where three TF32 products took 0.91 of the vendor's
    time in a trial of this project (4096 by 4096 by 4096), and where the vendor is far from the floor."""
    profile = site.profiles[0]
    if profile is not None and profile.time_us and profile.headroom > FAR:
        return Expectation(FAR, f"the vendor takes {profile.headroom:.1f} times the floor")
    vendor = site.run.vendor
    assert vendor is not None
    moved = site.model_us([(frozenset(vendor.operands.values()), frozenset([vendor.out]))])
    if product.element != "fp32" or site.call_us(0) < 2 * moved:
        return None
    return Expectation(1.1, "float32 sums as three TF32 products in matrix instructions")


def _facts(site: RunSite) -> tuple[Product, Epilogue | None]:
    """None where no kernel follows in the run."""
    if site.sources is None:
        raise NotUnderstood("the kernel is not of the known shape")
    product = product_of(site.run)
    epilogue = epilogue_of(site.run, site.sources[0]) if site.sources else None
    if min(product.n, product.k, max(product.m, LEAST_SIDE)) < LEAST_SIDE or product.batch > _MOST_BATCHES:
        raise NotUnderstood("too small, or too many batches")
    if epilogue is not None and epilogue.row and (
            epilogue.row != product.n or epilogue.source.fixed["R0_BLOCK"] * LEAST_SIDE > MOST_SUMS):
        raise NotUnderstood("rows that no tile holds")
    return product, epilogue


def _tiles(product: Product, epilogue: Epilogue | None) -> Iterator[tuple[int, int, int, int, int]]:
    known = _SINGLE_TILES if product.element == "fp32" else _HALF_TILES
    if epilogue is not None and epilogue.row:
        columns = epilogue.source.fixed["R0_BLOCK"]
        for rows in (128, 64, 32, 16):
            if columns >= LEAST_SIDE and rows * columns <= MOST_SUMS and rows < 2 * max(product.m, LEAST_SIDE):
                yield rows, columns, 32, 8 if rows * columns > 4096 else 4, 2 if columns > 256 else 3
        return
    found = [t for t in known if t[0] < 2 * max(product.m, 32) and t[1] < 2 * max(product.n, 32)]
    yield from found or known[-1:]


def _candidate(site: RunSite, product: Product, epilogue: Epilogue | None, tile: tuple[int, int, int], warps: int,
               stages: int, precision: str) -> KernelCandidate:
    rows, columns, depth = tile
    run = site.run
    row_of = f"batch * {product.m} + rows"
    by_row = epilogue is not None and epilogue.row > 0
    if by_row:
        head = statements(f"xindex = ({row_of})[:, None]\nxmask = rows_in[:, None]")
        index: dict[str, str] = {}
    else:
        head = statements(
            f"row_of = tl.broadcast_to(({row_of})[:, None], [BM, BN])\n"
            f"column_of = tl.broadcast_to(columns[None, :], [BM, BN])\n"
            f"xindex = row_of * {product.n} + column_of\n"
            "xmask = rows_in[:, None] & columns_in[None, :]")
        index = {f"xindex % {product.n}": "column_of", f"xindex // {product.n}": "row_of"}
    tile_of = tile_code(product, depth, by_row, precision)
    if epilogue is None:
        code, others = [*tile_of, *alone("acc", head, product.out)], {product.out}
    else:
        keep = product.out in run.written and product.out not in epilogue.stores
        code = [*tile_of, *body(epilogue, "acc", head, "[BM, BN]", index, keep)]
        others = set(epilogue.loads | epilogue.stores) | ({product.out} if keep else set())
    operands = {product.left.buffer, product.right.buffer} | ({product.added.buffer} if product.added else set())
    used = operands | others
    pointers = tuple(b.name for b in run.buffers if b.name in used)
    across = f"cdiv({product.n}, {columns})"
    grid = f"cdiv({product.m}, {rows})" if by_row else f"cdiv({product.m}, {rows}) * {across}"
    function = Function("product_and_after", pointers, ("BM", "BN"), code)
    launch = FusedLaunch(function, (grid, str(product.batch)), pointers, {"BM": rows, "BN": columns}, warps, stages)
    rationale = f"tiles of {rows} by {columns}, {depth} deep, in {warps} warps"
    if product.element == "fp32":
        rationale += f", products in {precision}"
    if epilogue is not None:
        rationale += "; the kernel after the product works on the sums in registers"
    return candidate(site, ProductEpilogue.name, [launch], (), rationale, lever="region")


REGION = ProductEpilogue()
