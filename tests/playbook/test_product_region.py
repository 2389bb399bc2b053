"""What regions take and decline, by facts of the vendor call and of the kernel after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.contract import plan as plan_contract
from kernelopt_bot.playbook.depthwise_region import REGION as DEPTHWISE
from kernelopt_bot.playbook.depthwise_region import depthwise_of
from kernelopt_bot.playbook.fusion import RunSite
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.product import Product, product_of
from kernelopt_bot.playbook.product_region import REGION as PRODUCT
from tests.playbook.run_sites import region_sites

DATA = Path(__file__).parent / "data" / "regions" / "torch2.11"


def text(name: str) -> str:
    return (DATA / f"{name}.py.txt").read_text()


def site(wrapper: str) -> RunSite:
    return region_sites(wrapper)[-1]


def product(name: str) -> Product:
    return product_of(site(text(name)).run)


def test_products_are_read_from_their_layouts() -> None:
    p = product("product_softmax")
    assert (p.batch, p.m, p.n, p.k) == (3, 40, 36, 24) and p.flops == 2 * 3 * 40 * 36 * 24
    assert p.left.strides == (960, 24, 1) and p.right.strides == (864, 1, 24) and p.added is None
    added = product("product_half").added
    assert added is not None and added.strides == (0, 0, 1)
    pixels = product("pointwise_hardswish")
    assert (pixels.batch, pixels.m, pixels.n, pixels.k) == (2, 20, 99, 24)
    assert pixels.left.strides == (0, 24, 1) and pixels.right.strides == (2376, 99, 1)


def test_channels_last_turns_a_pointwise_convolution_round() -> None:
    wrapper = text("pointwise_hardswish").replace("(2376, 99, 11, 1)", "(2376, 1, 264, 24)").replace(
        "(1980, 99, 11, 1)", "(1980, 1, 220, 20)")
    p = product_of(site(wrapper).run)
    assert (p.batch, p.m, p.n, p.k) == (2, 99, 20, 24)
    assert p.left.strides == (2376, 24, 1) and p.right.strides == (0, 1, 24)


@pytest.mark.parametrize("name, old, new", [
    ("product_half", "alpha=1", "alpha=2"),
    ("pointwise_hardswish", "stride=(1, 1)", "stride=(2, 1)"), ("pointwise_hardswish", "groups=1", "groups=2"),
    ("pointwise_hardswish", "padding=(0, 0)", "padding=(0, 1)"),
    ("pointwise_hardswish", "transposed=False", "transposed=True")])
def test_other_products_are_declined(name: str, old: str, new: str) -> None:
    assert PRODUCT.applies(site(text(name))) is not None
    changed = site(text(name).replace(old, new))
    with pytest.raises(NotUnderstood):
        product_of(changed.run)
    assert PRODUCT.applies(changed) is None and not list(PRODUCT.propose(changed))


@pytest.mark.parametrize("name, old, new", [
    ("depthwise_relu", "groups=6", "groups=3"), ("depthwise_relu", "transposed=False", "transposed=True"),
    ("depthwise_relu", "(294, 49, 7, 1)", "(294, 1, 42, 6)")])
def test_other_convolutions_are_declined(name: str, old: str, new: str) -> None:
    assert DEPTHWISE.applies(site(text(name))) is not None and old in text(name)
    changed = site(text(name).replace(old, new))
    with pytest.raises(NotUnderstood):
        depthwise_of(changed.run)
    assert DEPTHWISE.applies(changed) is None and not list(DEPTHWISE.propose(changed))


@pytest.mark.parametrize("old, new", [
    ("tl.load(in_out_ptr0 + (x2), xmask)", "tl.load(in_out_ptr0 + (x2 // 2), xmask)"),
    ("tl.load(in_out_ptr0 + (x2), xmask)", "tl.load(in_out_ptr0 + (x2), xmask) + xoffset"),
    ("tl.load(in_out_ptr0 + (x2), xmask)", "tl.atomic_add(in_out_ptr0 + (x2), 1.0, xmask)")])
def test_kernels_that_take_other_elements_are_declined(old: str, new: str) -> None:
    assert old in text("product_relu")
    assert PRODUCT.applies(site(text("product_relu").replace(old, new))) is None


def test_the_product_is_stored_where_something_reads_it_later() -> None:
    kept, gone = (next(iter(PRODUCT.propose(site(text(n))))) for n in ("product_twice", "product_relu"))
    assert kept.source.count("tl.store(") == 2 and gone.source.count("tl.store(") == 1


def test_candidates_keep_the_contract_and_differ() -> None:
    for path in sorted(DATA.glob("*.py.txt")):
        for one in region_sites(path.read_text()):
            technique = DEPTHWISE if path.name.startswith("depthwise") else PRODUCT
            candidates = list(technique.propose(one))
            assert candidates and len({c.id for c in candidates}) == len(candidates), path.name
            for c in candidates:
                assert plan_contract.check(c.plan, c.source) == [] and c.lever == "region"


def test_plain_tf32_is_proposed_of_convolutions_alone() -> None:
    def precisions(name: str) -> list[bool]:
        return ["'tf32'" in c.source for c in PRODUCT.propose(site(text(name)))]

    assert precisions("pointwise_hardswish")[:2] == [False, True] and sum(precisions("pointwise_hardswish")) <= 2
    assert not any(precisions("product_relu")) and not any(precisions("product_alone"))
