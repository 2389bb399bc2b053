import pytest

from kernelopt_bot.contract import flow, source
from tests.contract.sources import GOOD, body

HELPERS = """
@triton.jit
def put(p, v):
    tl.store(p, v)


@triton.jit
def shifted(p, by):
    return p + by


@triton.jit
def smuggle(a, b):
    tl.store(a, 0.0)
    return b


@triton.jit
def even(a):
    return odd(a)


@triton.jit
def odd(a):
    return even(a)

"""


def effects(*lines: str, pointers: tuple[str, ...] = ("x", "y")) -> flow.Effects:
    text = body(*lines, before=HELPERS, parameters="x, y, n, BLOCK: tl.constexpr")
    assert source.check(text) == []
    return flow.analyse(source.functions(text), "k", frozenset(pointers))


def test_plain_kernel() -> None:
    found = flow.analyse(source.functions(GOOD), "scale", frozenset({"in_ptr0", "out_ptr0"}))
    assert (found.loaded, found.stored, found.atomics, found.unknown) == ({"in_ptr0"}, {"out_ptr0"}, set(), set())


@pytest.mark.parametrize(("lines", "loaded", "stored"), [
    (["tl.store(x + o, tl.load(y + o))"], {"y"}, {"x"}),
    (["p = x + o", "q = p", "tl.store(q, 0)"], set(), {"x"}),
    (["p = x", "p += n", "tl.store(p + o, 0)"], set(), {"x"}),
    (["p = x", "for i in range(n):\n        tl.store(p + o, 0)\n        p = y"], set(), {"x", "y"}),
    (["p, q = x, y", "tl.store(q + o, 0)"], set(), {"x", "y"}),
    (["p = tl.where(n > 0, x, y)", "tl.store(p + o, 0)"], set(), {"x", "y"}),
    (["p = x if n > 0 else y", "tl.store(p + o, 0)"], set(), {"x", "y"}),
    (["if n > 0:\n        p = x\n    else:\n        p = y", "tl.store(p + o, 0)"], set(), {"x", "y"}),
    (["put(y + o, tl.load(x + o))"], {"x"}, {"y"}),
    (["put(v=tl.load(x + o), p=y + o)"], {"x"}, {"y"}),
    (["tl.store(shifted(x, o), 0)"], set(), {"x"}),
    (["tl.store(shifted(x, o), tl.load(shifted(y, o)))"], {"y"}, {"x"}),
    (["p = (x + o)[:, None] + o[None, :]", "tl.store(p, 0)"], set(), {"x"}),
    (["p = tl.make_block_ptr(x, [n], [1], [0], [BLOCK], [0])", "tl.store(tl.advance(p, [1]), 0)"], set(), {"x"}),
    (["p = tl.multiple_of(x, 16).broadcast_to([BLOCK])", "tl.store(p, 0)"], set(), {"x"}),
    (["tl.store(value=0, pointer=x + o)"], set(), {"x"}),
    (["y = tl.load(x + o).to(y.dtype.element_ty)"], {"x"}, set()),
    (["z = triton_helpers.bucketize_binary_search(o, x, n, n, 1, 0, tl.int32, True, None, None, None)"], {"x"}, set()),
])
def test_loads_and_stores(lines: list[str], loaded: set[str], stored: set[str]) -> None:
    found = effects(*lines)
    assert (found.loaded, found.stored) == (loaded, stored)
    assert found.unknown == set()


def test_atomics_load_and_store() -> None:
    found = effects("tl.atomic_add(x + o, 1)")
    assert (found.loaded, found.stored, found.atomics) == ({"x"}, {"x"}, {"x"})


@pytest.mark.parametrize("line", [
    "tl.store(y + o, x + o)",
    "z = x.to(tl.int64)",
    "z = tl.cast(x, tl.int64)",
    "z = n.to(x.dtype)",
    "z = x - y",
    "z = x + y",
    "z = n - x",
    "z = x * 2",
    "z = x > y",
    "z = tl.sum(x + o, 0)",
    "z = tl.reduce(x + o, 0, smuggle)",
    "z = tl.reduce(o, 0, smuggle)",
    "tl.store(o, 0)",
    "z = tl.load(n + o)",
    "z = tl.load(tl.load(x + o))",
    "z = o[x]",
    "z = tl.where(x, 1, 2)",
    "z = -x",
    "z = even(n)",
    "z = tl.cat(x + o, y + o)",
    "z = tl.load(x + tl.load(y + o), mask=x)",
    "for i in range(x):\n        pass",
    "if x:\n        pass",
])
def test_pointers_turned_into_data_are_unknown_flow(line: str) -> None:
    assert effects(line).unknown


def test_integers_are_not_pointers() -> None:
    """The same arithmetic is fine on a parameter that the plan says is an integer."""
    found = effects("z = n * 2 - n", "if n > 3:\n        z = -n", "tl.store(x + z * o, n.to(tl.float32))")
    assert found.unknown == set()


def test_data_from_memory_is_no_pointer() -> None:
    found = effects("index = tl.load(x + o)", "tl.store(y + index, 0)")
    assert (found.stored, found.unknown) == ({"y"}, set())
