"""What may be moved into what: runs put together from small kernels in Inductor's form, and captured ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.contract import plan as plan_contract
from kernelopt_bot.playbook.fuse_producers import FUSION, fuse
from kernelopt_bot.playbook.fusion import RunSite
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.values import Values
from tests.playbook.run_sites import run_sites
from tests.sandbox.worker.sources import inductor_kernel

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data" / "runs"
HEAD = """\
    xnumel = 4096
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
"""


def pointwise(body: str, *pointers: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return inductor_kernel(HEAD + lines, {**dict.fromkeys(pointers, "*fp32"), "xnumel": "i32", "XBLOCK": "constexpr"},
                           {"x": 4096}, mutated=tuple(p for p in pointers if p.startswith("in_out")))


DOUBLE = pointwise("tmp0 = tl.load(in_ptr0 + (x0), xmask)\ntl.store(out_ptr0 + (x0), tmp0 * 2.0, xmask)",
                   "in_ptr0", "out_ptr0")
ADD_TO = pointwise("tmp0 = tl.load(in_out_ptr0 + (x0), xmask)\ntmp1 = tl.load(in_ptr0 + (x0), xmask)\n"
                   "tl.store(in_out_ptr0 + (x0), tmp0 + tmp1, xmask)", "in_out_ptr0", "in_ptr0")
REVERSED = pointwise("tmp0 = tl.load(in_ptr0 + (4095 - x0), xmask)\ntl.store(out_ptr0 + (x0), tmp0 * 2.0, xmask)",
                     "in_ptr0", "out_ptr0")
ADD = pointwise("tmp0 = tl.load(in_ptr0 + (x0), xmask)\ntmp1 = tl.load(in_ptr1 + (x0), xmask)\n"
                "tl.store(out_ptr0 + (x0), tmp0 + tmp1, xmask)", "in_ptr0", "in_ptr1", "out_ptr0")


def run(calls: list[tuple[str, str]], returned: str = "buf9") -> RunSite:
    """The run of all calls: (kernel source, its buffers). `arg*` are inputs, `buf*` are allocated, all of 4096."""
    definitions = "".join(f"k{n} = async_compile.triton('baseline', '''{source}''', device_str='cuda')\n"
                          for n, (source, _) in enumerate(calls))
    names = sorted({b for _, buffers in calls for b in buffers.split()})
    checks = "".join(f"        assert_size_stride({n}, (4096, ), (1, ))\n" for n in names if n.startswith("arg"))
    made = "".join(f"            {n} = empty_strided_cuda((4096, ), (1, ), torch.float32)\n"
                   for n in names if n.startswith("buf"))
    lines = "".join(f"            k{n}.run({', '.join(buffers.split())}, 4096, stream=stream0)\n"
                    for n, (_, buffers) in enumerate(calls))
    text = (f"{definitions}async_compile.wait(globals())\nclass Runner:\n    def call(self, args):\n"
            f"        arg0_1, arg1_1 = args\n{checks}        with torch.cuda._DeviceGuard(0):\n{made}{lines}"
            f"        return ({returned}, )\n")
    return next(s for s in run_sites(text) if len(s.run.calls) == len(calls))


def launches(site: RunSite) -> int:
    return len(fuse(site))


def test_a_value_that_only_the_next_kernel_reads_is_computed_there() -> None:
    site = run([(DOUBLE, "arg0_1 buf0"), (ADD, "buf0 arg1_1 buf9")])
    assert launches(site) == 1
    (made, *_) = FUSION.propose(site)
    assert [p.name for p in made.plan.parameters] == ["p0", "p1", "p2"] and not made.plan.scratch
    assert plan_contract.check(made.plan, made.source, integers={**site.run.integers, "num_sms": 132}) == []


def test_a_value_that_is_returned_stays() -> None:
    with pytest.raises(NotUnderstood, match="no kernel"):
        fuse(run([(DOUBLE, "arg0_1 buf0"), (ADD, "buf0 arg1_1 buf9")], "buf0, buf9"))


def test_memory_that_changes_in_between_keeps_the_producer_where_it_is() -> None:
    """buf1 = 2 arg0; arg0 += arg1 (an input, so it stays); buf9 = buf1 + arg1."""
    with pytest.raises(NotUnderstood):
        fuse(run([(DOUBLE, "arg0_1 buf1"), (ADD_TO, "arg0_1 arg1_1"), (ADD, "buf1 arg1_1 buf9")]))
    assert launches(run([(DOUBLE, "arg1_1 buf1"), (ADD_TO, "arg0_1 arg1_1"), (ADD, "buf1 arg1_1 buf9")])) == 2


def test_a_consumer_in_place_takes_a_producer_that_reads_the_same_element_only() -> None:
    """arg0 += 2 arg0, with the doubled value read in order or in reverse."""
    assert launches(run([(DOUBLE, "arg0_1 buf0"), (ADD_TO, "arg0_1 buf0")], "arg1_1")) == 1
    with pytest.raises(NotUnderstood):
        fuse(run([(REVERSED, "arg0_1 buf0"), (ADD_TO, "arg0_1 buf0")], "arg1_1"))


def test_a_value_overwritten_before_it_is_read_again_is_not_mixed_up() -> None:
    """buf0 = 2 arg0; buf1 = buf0 + arg1; buf0 = 2 arg1; buf9 = buf1 + buf0."""
    site = run([(DOUBLE, "arg0_1 buf0"), (ADD, "buf0 arg1_1 buf1"), (DOUBLE, "arg1_1 buf0"), (ADD, "buf1 buf0 buf9")])
    (only,) = fuse(site)
    assert only.loads == {"p0", "p1"}
    writers = [Values.of(site).writer(site.run.calls[2].arguments[1], p) for p in (1, 3)]  # type: ignore[arg-type]
    assert writers == [0, 2]


LOAD, STORE = "tmp0 = tl.load(in_ptr0 + (x0), xmask)", "tl.store(out_ptr0 + (x0), tmp0 * 2.0, xmask)"


@pytest.mark.parametrize("load, store", [
    # what must happen once
    (f"{LOAD} + tl.rand(3, x0)", STORE), ("tmp0 = tl.atomic_add(in_ptr0 + (x0), 0.0, xmask)", STORE),
    (f"tl.device_assert(x0 < 9000, 'message')\n{LOAD}", STORE),
    # a store out of order
    (LOAD, "tl.store(out_ptr0 + (x0 // 2), tmp0, xmask)"), (LOAD, "tl.store(out_ptr0 + (x0), 1.0, xmask)"),
    (LOAD, "tl.store(out_ptr0 + (4095 - x0), tmp0, xmask)")])
def test_what_must_stay_where_it_is_is_not_moved(load: str, store: str) -> None:
    source = pointwise(f"{load}\n{store}", "in_ptr0", "out_ptr0")
    with pytest.raises(NotUnderstood):
        fuse(run([(source, "arg0_1 buf0"), (ADD, "buf0 arg1_1 buf9")]))


def captured(name: str, steps: int) -> RunSite:
    text = (DATA / "torch2.13" / f"{name}.py.txt").read_text()
    return next(s for s in run_sites(text) if len(s.run.calls) == steps and FUSION.applies(s) is not None)


def test_a_short_reduction_runs_once_for_each_program_of_a_row() -> None:
    site = captured("instance_norm_half", 2)
    (only,) = fuse(site)
    (made, *_) = FUSION.propose(site)
    assert only.row == 96 * 96
    assert made.source.count("triton_helpers.welford(") == 1, "both statistics come from one copy of the reduction"


def test_rows_that_no_tile_divides_keep_a_mask() -> None:
    site = captured("group_norm_63x65", 2)
    made = list(FUSION.propose(site))
    assert fuse(site)[0].row == 63 * 65 and all("fused_column < 4095" in c.source for c in made)


def test_a_reduction_is_not_repeated_for_each_element() -> None:
    """Channels last: the statistics of an element change from lane to lane."""
    text = (DATA / "torch2.13" / "instance_norm_half.py.txt").read_text()
    last = text.replace("x1 = xindex // 9216", "x1 = xindex % 2")
    assert last != text
    for site in run_sites(last):
        with pytest.raises(NotUnderstood):
            fuse(site)


def test_all_that_is_proposed_keeps_the_contract() -> None:
    count = 0
    for path in sorted(DATA.glob("*/*.py.txt")):
        for site in run_sites(path.read_text()):
            for made in FUSION.propose(site) if FUSION.applies(site) else ():
                count += 1
                integers = {**site.run.integers, "num_sms": 132}
                assert plan_contract.check(made.plan, made.source, integers=integers) == [], path.name
                assert {p.name for p in made.plan.parameters if p.written} == site.run.written
    assert count > 40
