"""Gate 2's memory: what it may take, where results wait, and what two launches left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.client import WorkerFailed
from kernelopt_bot.sandbox.worker import golden, tensors
from kernelopt_bot.sandbox.worker.buffers import GUARD_BYTE, Arena, Slot
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import IMPORTS, inductor_kernel

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
MEBI = 1 << 20


def slots(elements: int, dtype: torch.dtype = torch.float32) -> list[Slot]:
    return [Slot("x", dtype, (elements,), (1,), 0, "x"),
            Slot("y", dtype, (elements,), (1,), 0, "y", loaded=False, stored=True)]


def room(elements: int, program_bytes: int | None, dtype: torch.dtype = torch.float32) -> golden.Room:
    return golden.room(slots(elements, dtype), torch.device("meta"), scratch_bytes=0, program_bytes=program_bytes,
                       promoted=True)


def test_a_small_step_keeps_its_results_on_the_device() -> None:
    found = room(MEBI, 0)
    assert found.home.type == "meta" and found.limit == golden.ALWAYS


def test_a_large_step_that_is_the_whole_program_stays_on_the_device() -> None:
    """8 GiB of buffers: the limit is three times that in a program of this step."""
    payload = 8 << 30
    found = room(payload // 8, payload)
    assert found.limit == 3 * payload and found.home.type == "meta" and not found.redrawn
    assert 2.5 * payload < found.needed <= found.limit


def test_inputs_are_drawn_twice_where_both_widths_do_not_fit() -> None:
    """A reduction: its inputs and these in float64 alone are three times its buffers."""
    payload = 8 << 30
    rows = [Slot("x", torch.float32, (payload // 4,), (1,), 0, "x"),
            Slot("y", torch.float32, (64,), (1,), 0, "y", loaded=False, stored=True)]

    def needed(program_bytes: int) -> golden.Room:
        return golden.room(rows, torch.device("meta"), scratch_bytes=0, program_bytes=program_bytes, promoted=True)

    small, large = needed(payload), needed(2 * payload)
    assert small.home.type == large.home.type == "meta"
    assert small.redrawn and not large.redrawn
    assert 2 * payload < small.needed < 2.2 * payload and 3 * payload < large.needed < 3.2 * payload


def test_a_large_step_in_place_keeps_its_results_on_the_host() -> None:
    payload = 8 << 30
    inplace = [Slot("x", torch.float32, (payload // 4,), (1,), 0, "x", stored=True)]
    found = golden.room(inplace, torch.device("meta"), scratch_bytes=0, program_bytes=payload, promoted=True)
    assert found.limit == 3 * payload and found.home.type == "cpu"
    assert payload < found.needed <= found.limit


def test_a_step_that_does_not_fit_is_no_failure_of_the_candidate() -> None:
    with pytest.raises(WorkerFault, match="are allowed") as caught:
        room(4 << 30, 16 << 30, torch.bfloat16)
    assert caught.value.kind == "out_of_memory"


def written(data: torch.Tensor, poison: int) -> Arena:
    arena = Arena(slots(data.numel()), CPU)
    arena.payload("y").fill_(poison)
    there = ~data.isnan()
    arena.view(slots(data.numel())[1])[there] = data[there]
    return arena


def run(data: torch.Tensor, again: torch.Tensor | None = None) -> golden.Repeated:
    both = iter((data, data if again is None else again))
    return golden.repeated(lambda poison: (written(next(both), poison), True), slots(data.numel()), CPU, CPU)


@pytest.mark.parametrize("piece", [8, 1 << 25])
def test_what_was_written_is_found_piece_by_piece(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(golden, "PIECE", piece)
    whole = torch.arange(1.0, 33.0)
    part = whole.clone()
    part[5:8] = torch.nan
    base, ours = run(whole), run(part)
    assert base.written["y"] is None and base.same and base.intact
    assert golden.coverage(base, ours, CPU) == (12, 0) and golden.coverage(ours, base, CPU) == (0, 12)
    assert golden.coverage(ours, ours, CPU) == (0, 0)
    later = part.clone()
    later[4:6] = torch.tensor([torch.nan, 9.0])
    assert golden.coverage(ours, run(later), CPU) == (4, 4)
    assert not run(whole, whole + 1).same
    assert golden.equal(base.first, run(whole).first, ["y"], CPU)
    assert not golden.equal(base.first, ours.first, ["y"], CPU)


def test_only_results_are_kept_where_they_lie() -> None:
    arena = written(torch.ones(4), GUARD_BYTE)
    kept = arena.kept(["y"], CPU)
    assert set(kept.blocks) == {"y"} and kept.payload("y").data_ptr() == arena.payload("y").data_ptr()
    assert set(run(torch.ones(4)).first.blocks) == {"y"}
    elsewhere = arena.kept(["y"], torch.device("meta"))
    assert elsewhere.nbytes() == 16 and elsewhere.blocks["y"].memory.device.type == "meta"


def test_a_guard_written_in_either_launch_is_seen() -> None:
    def launch(poison: int) -> tuple[Arena, bool]:
        arena = written(torch.ones(4), poison)
        if poison != GUARD_BYTE:
            block = arena.blocks["x"]
            block.memory[block.start - 1] = 0
        return arena, True

    assert not golden.repeated(launch, slots(4), CPU, CPU).intact


BODY = """\
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask)
    tmp1 = tl_math.abs(tmp0)
    tmp2 = 1.0 + tmp1
    tl.store(out_ptr0 + xindex, tmp0 / tmp2, xmask)
"""
SIGNATURE = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}
CANDIDATE = IMPORTS + """
@triton.jit
def softsign(in_ptr0, out_ptr0, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(in_ptr0 + i, i < n)
    tl.store(out_ptr0 + i, x / (1.0 + tl_math.abs(x)), i < n)
"""


def pointwise(elements: int, lane: str) -> dict[str, Any]:
    """`check_step` of a pointwise kernel on inputs that are drawn, not recorded."""
    source = inductor_kernel(BODY, SIGNATURE, {"x": elements})
    plan = {"parameters": [{"name": "in_ptr0", "type": "*fp32", "written": False, "read": True},
                           {"name": "out_ptr0", "type": "*fp32", "written": True, "read": False},
                           {"name": "xnumel", "type": "i32", "written": False, "read": True}],
            "launches": [{"function": "softsign", "grid": ["cdiv(xnumel, 65536)"],
                          "arguments": ["in_ptr0", "out_ptr0", "xnumel"], "constexprs": {"BLOCK": 65536},
                          "num_warps": 8}], "scratch": []}
    meta = {"meta": tensors.meta(torch.empty(elements, device="meta")),
            "stats": {"min": -3.0, "max": 3.0, "mean": 0.0, "std": 1.0, "finite": True}}
    return {"baseline": {"source": source, "integers": {}}, "candidate": {"source": CANDIDATE, "plan": plan},
            "arguments": [meta, meta, elements], "lane": lane, "secret": "test",
            "families": ["captured", "normal", "zero", "cancelling", "extreme"],
            "precision": {"m": 2, "k": 4}, "program_bytes": 8 * elements}


COLUMNS = 128
SUMS = """\
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, 128)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 128*xindex), xmask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, 128])
    tmp3 = tl.where(xmask, tmp1, 0)
    tmp4 = tl.sum(tmp3, 1)[:, None]
    tl.store(out_ptr0 + xindex, tmp4, xmask)
"""
SUM = IMPORTS + """
@triton.jit
def sums(in_ptr0, out_ptr0, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(in_ptr0 + 128 * i[:, None] + tl.arange(0, 128)[None, :], (i < n)[:, None], other=0.0)
    tl.store(out_ptr0 + i, tl.sum(x, 1), i < n)
"""


def sums(elements: int) -> dict[str, Any]:
    """`check_step` of sums over rows of 128, drawn."""
    rows = elements // COLUMNS
    given = pointwise(elements, "interpret")
    plan = {**given["candidate"]["plan"], "launches": [
        {"function": "sums", "grid": ["cdiv(xnumel, 64)"], "arguments": ["in_ptr0", "out_ptr0", "xnumel"],
         "constexprs": {"BLOCK": 64}, "num_warps": 8}]}
    source = inductor_kernel(SUMS, SIGNATURE, {"x": rows, "r0_": COLUMNS}, "persistent_reduction")
    meta = {"meta": tensors.meta(torch.empty(rows, COLUMNS, device="meta")), "stats": given["arguments"][0]["stats"]}
    out = {"meta": tensors.meta(torch.empty(rows, device="meta")), "stats": meta["stats"]}
    return {**given, "baseline": {"source": source, "integers": {}}, "candidate": {"source": SUM, "plan": plan},
            "arguments": [meta, out, rows]}


COUNTED = """
import json, sys
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
import torch
from torch.utils._pytree import tree_leaves
from kernelopt_bot.sandbox.worker import buffers, check_step, draws, golden, precision, seeds
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault


class Peak(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.live, self.peak = {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                storage = leaf.untyped_storage()
                self.live.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.live = {k: v for k, v in self.live.items() if not v[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return result


scale = int(sys.argv[3])
precision.CHUNK, golden.PIECE, draws.DRAWN = precision.CHUNK >> scale, golden.PIECE >> scale, draws.DRAWN >> scale
golden.WORKING, buffers.CHECKSUM_CHUNK = golden.WORKING >> scale, buffers.CHECKSUM_CHUNK >> scale
buffers.MOST_GUARD >>= scale
golden.ALWAYS = check_step.COLLECTED = 0
if sys.argv[4:]:
    calls = iter(range(1000))
    seeds.generator = lambda *given: torch.Generator().manual_seed(next(calls))
with Peak() as peak:
    try:
        answer = check_step.check_step(json.loads(sys.argv[1]), Context(sys.argv[2], None), sys.argv[2])
    except WorkerFault as e:
        print(json.dumps({"error": e.message}))
        sys.exit()
print(json.dumps({"peak": peak.peak, "needed": answer["needed_bytes"], "limit": answer["limit_bytes"],
                  "families": [f["passed"] for f in answer["families"]], "float64": answer["float64"]}))
"""


def counted(params: dict[str, Any], folder: Path, *also: str) -> dict[str, Any]:
    """Live bytes of all tensors in the interpreter lane, pieces and working memory scaled down with the tensor."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, json.dumps(params), str(folder), "9", *also],
        capture_output=True, text=True, timeout=200, cwd=Path(__file__).parents[3],
        env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "HOME": str(folder)})
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_check_takes_no_more_than_it_says(tmp_path: Path) -> None:
    """The room that was computed holds, draws, references and comparisons included."""
    elements = 1 << 18
    params = {**pointwise(elements, "interpret"), "program_bytes": 64 * elements,
              "families": ["cancelling", "extreme"]}
    found = counted(params, tmp_path)
    assert found["families"] == [True] * 2 and found["float64"] == "used"
    assert found["needed"] <= found["limit"] == 80 * elements
    assert 20 * elements < found["peak"] <= found["needed"]


def test_inputs_that_are_drawn_twice_are_the_same(tmp_path: Path) -> None:
    elements, families = 1 << 18, ["normal", "constant", "extreme"]
    params = {**sums(elements), "program_bytes": 6 * elements, "families": families}
    found = counted(params, tmp_path)
    assert found["families"] == [True] * len(families) and found["float64"] == "used"
    # its inputs in both widths alone are 12 bytes an element, and the working memory 4
    assert found["needed"] < 13 * elements < found["limit"]
    assert 8 * elements < found["peak"] <= found["needed"]
    assert "drew other inputs" in counted(params, tmp_path, "other seeds each time")["error"]


def test_a_step_too_large_for_its_program_is_not_measured(interpreter: KernelWorker) -> None:
    params = pointwise(1 << 31, "interpret")
    with pytest.raises(WorkerFailed, match="are allowed") as caught:
        interpreter.call("check_step", {**params, "program_bytes": 0})
    assert caught.value.kind == "out_of_memory"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("program_bytes", [None, 0])
def test_on_a_gpu_too(tmp_path: Path, program_bytes: int | None) -> None:
    """64M elements with room enough, and 512M within three times the buffers when the program is only this step."""
    from kernelopt_bot.sandbox.worker import check_step
    from kernelopt_bot.sandbox.worker.main import Context

    elements = 1 << 29 if program_bytes == 0 else 1 << 26
    params = {**pointwise(elements, "cuda"), "program_bytes": None if program_bytes is None else 8 * elements}
    answer = check_step.check_step(params, Context(str(tmp_path), sys.stdout.buffer), str(tmp_path))
    assert [f["passed"] for f in answer["families"]] == [True] * 5
    assert answer["golden"] == "device"
    assert 16 * elements < answer["peak_bytes"] <= answer["needed_bytes"] <= answer["limit_bytes"]
