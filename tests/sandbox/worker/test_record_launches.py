"""Launches of Triton kernels recorded in a model worker under the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.sandbox.client import Worker, WorkerFailed
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.sandbox.worker.record_launches import MOST_DISTINCT

OPS = '''import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, row_stride, col_stride, n, factor, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * row_stride + cols * col_stride, mask=cols < n)
    tl.store(out_ptr + tl.program_id(0) * n + cols, x * factor, mask=cols < n)


def host(x, factor=2.0, block=64, **options):
    out = torch.empty(x.shape, dtype=x.dtype)
    scale[(x.shape[0],)](x, out, x.stride(0), x.stride(1), x.shape[1], factor, BLOCK=block, **options)
    return out


def twice_and_once():
    x = torch.randn(3, 40)
    assert torch.equal(host(x), 2 * x) and torch.equal(host(x), 2 * x)
    wide = torch.randn(5, 100)[:, ::2]
    assert torch.equal(host(wide, 3.0, num_warps=2), 3 * wide)


def calls(device):
    return [lambda b=b: host(torch.ones(2, 8, device=device), b) for b in (1.0, 4.0)]


def raises():
    raise ValueError("the data set is not here")


def elsewhere():
    torch.zeros(3)


def empty():
    host(torch.empty(0, 8))


def partly_empty():
    host(torch.empty(0, 8)), host(torch.empty(4, 0)), host(torch.ones(1, 8))


def none():
    scale[(1,)](None, torch.ones(8), 8, 1, 8, 1.0, BLOCK=8)


def caught():
    try:
        none()
    except Exception:
        pass
    host(torch.ones(1, 8))


def a_tuple():
    scale[(1,)](torch.ones(8), torch.ones(8), (8,), 1, 8, 1.0, BLOCK=8)


def a_type():
    host(torch.ones(1, 8), block=tl.float32)


def clusters():
    host(torch.ones(1, 8), num_ctas=2)


def many():
    for n in range(1, 40):
        host(torch.ones(1, n))


def wrong():
    host(torch.ones(1, 8), block=7)


@triton.autotune(configs=[triton.Config({"BLOCK": 16}, num_warps=2), triton.Config({"BLOCK": 32}, num_stages=1)],
                 key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = False):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at, mask=at < n)


def fill():
    out = torch.empty(96, dtype=torch.int32)
    tuned[lambda meta: (triton.cdiv(96, meta["BLOCK"]),)](out, 96)
    assert out.tolist() == list(range(96))
'''
TESTS = '''import pytest
import torch

from ops import host


@pytest.mark.parametrize("n", [8, 24])
def test_host(n):
    x = torch.randn(2, n)
    assert torch.equal(host(x), 2 * x)


def test_wrong():
    assert host(torch.ones(1, 8)).sum() == 0


def test_nothing():
    assert True


def test_skipped():
    host(torch.ones(1, 8))
    pytest.skip("not today")
'''


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ops")
    (folder / "ops.py").write_text(OPS)
    (folder / "test_ops.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker("model", python=sys.executable, jail=ProcessJail(), scratch=tmp_path_factory.mktemp("record"),
                interpret=True) as made:
        yield made


def record(worker: Worker, root: Path, inputs: str, kernel: str = "scale", **more: Any) -> dict[str, Any]:
    return worker.call("record_launches", {
        "root": str(root), "path": "ops.py", "kernel": kernel, "inputs": inputs, "device": "cpu", **more}, timeout=120)


def test_distinct_launches_with_how_often(worker: Worker, root: Path) -> None:
    first, second = record(worker, root, "twice_and_once")["calls"]
    assert (first["count"], second["count"]) == (2, 1)
    assert first["grid"] == [3] and first["constexprs"] == {"BLOCK": 64} and not first["callable_grid"]
    assert first["options"] == {"num_warps": 4, "num_stages": 3} and second["options"]["num_warps"] == 2
    assert first["arguments"]["n"] == {"value": 40} and first["arguments"]["factor"] == {"value": 2.0}
    x = second["arguments"]["x_ptr"]
    assert x["tensor"]["shape"] == [5, 50] and x["tensor"]["stride"] == [100, 2]
    assert x["saved"]["storage_bytes"] == 2000 and x["stats"]["finite"] and x["storage"] == "storage0"
    assert second["arguments"]["out_ptr"]["storage"] == "storage1"


def test_functions_that_are_returned_are_called_and_a_device_is_given(worker: Worker, root: Path) -> None:
    found = record(worker, root, "calls")["calls"]
    assert [c["arguments"]["factor"]["value"] for c in found] == [1.0, 4.0]


def test_a_parametrised_test_is_recorded_by_its_name(worker: Worker, root: Path) -> None:
    found = record(worker, root, "", record="test_ops.py::test_host")["calls"]
    assert [c["arguments"]["n"]["value"] for c in found] == [8, 24]
    (one,) = record(worker, root, "", record="test_ops.py::test_host[24]")["calls"]
    assert one["arguments"]["n"]["value"] == 24


def test_below_an_autotuner_and_heuristics_what_reaches_the_kernel_counts(worker: Worker, root: Path) -> None:
    answer = record(worker, root, "fill", "tuned")
    (call,) = answer["calls"]
    assert call["grid"] == [6] and call["callable_grid"] and call["options"] == {"num_warps": 2, "num_stages": 3}
    assert call["constexprs"] == {"BLOCK": 16, "EVEN": True}
    assert [c["constexprs"] for c in answer["configs"]] == [{"BLOCK": 16}, {"BLOCK": 32}]
    configs = [{"constexprs": {"BLOCK": b}, "num_warps": 4, "num_stages": 2} for b in (32, 64)]
    assert worker.call("launch_grids", {"configs": configs}, timeout=60)["grids"] == [
        [{"grid": [3], "constexprs": {"BLOCK": 32, "EVEN": True}},
         {"grid": [2], "constexprs": {"BLOCK": 64, "EVEN": False}}]]


def test_launches_over_nothing_are_counted_and_left_out(worker: Worker, root: Path) -> None:
    answer = record(worker, root, "partly_empty")
    assert answer["empty"] == 2 and [c["grid"] for c in answer["calls"]] == [[1]]


def test_an_edited_file_is_recorded_and_the_next_question_sees_the_old_one(worker: Worker, root: Path) -> None:
    new = OPS.replace("BLOCK=block, **options)", "BLOCK=block, num_warps=8)")
    (call,) = record(worker, root, "calls", text=new.replace("for b in (1.0, 4.0)", "for b in (1.0,)"))["calls"]
    assert call["options"]["num_warps"] == 8
    assert len(record(worker, root, "calls")["calls"]) == 2


def test_a_test_of_a_package_runs_over_the_edited_file_in_a_new_process(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "__init__.py").write_text("from net import ops\n")
    (tmp_path / "net" / "ops.py").write_text(OPS)
    (tmp_path / "test_net.py").write_text(TESTS.replace("from ops import host", "import net\nhost = net.ops.host"))
    new = OPS.replace("BLOCK=block, **options)", "BLOCK=block, num_warps=8)")
    with Worker("model", python=sys.executable, jail=ProcessJail(), scratch=tmp_path / "scratch",
                interpret=True) as fresh:
        found = record(fresh, tmp_path, "", path="net/ops.py", record="test_net.py::test_host", text=new)["calls"]
    assert [c["options"]["num_warps"] for c in found] == [8, 8]


@pytest.mark.parametrize("inputs, kind, words", [
    ("raises", "target_inputs", "raises failed: ValueError: the data set is not here"),
    ("elsewhere", "target_inputs", "elsewhere ran and never launched scale"),
    ("empty", "target_inputs", r"never launched scale over any elements \(1 launches were over none\)"),
    ("none", "unsupported", "the argument x_ptr is None: tensors and plain numbers are supported"),
    ("caught", "unsupported", "the argument x_ptr is None"),
    ("a_tuple", "unsupported", "the argument row_stride is of type builtins.tuple"),
    ("a_type", "unsupported", "the constexpr argument BLOCK is of type triton.dtype"),
    ("clusters", "unsupported", "the launch option num_ctas=2 is not supported"),
    ("many", "unsupported", f"more than {MOST_DISTINCT} distinct ways"),
    ("wrong", "target_inputs", "wrong failed"), ("gone", "target_missing", "no function 'gone' in ops.py"),
    ("record:test_ops.py::test_wrong", "target_inputs", "test_wrong cannot be used: it fails"),
    ("record:test_ops.py::test_skipped", "target_inputs", "test_skipped cannot be used: it was skipped"),
    ("record:test_ops.py::test_nothing", "target_inputs", "test_nothing ran and never launched scale"),
    ("record:test_ops.py::test_gone", "target_inputs", "test_gone cannot be used: pytest does not find it"),
])
def test_what_cannot_be_recorded_says_why(worker: Worker, root: Path, inputs: str, kind: str, words: str) -> None:
    test = inputs.removeprefix("record:") if inputs.startswith("record:") else ""
    with pytest.raises(WorkerFailed, match=words) as raised:
        record(worker, root, "" if test else inputs, record=test)
    assert raised.value.kind == kind
    detail = {"test_wrong": "assert host(torch.ones(1, 8)).sum() == 0", "test_skipped": "not today",
              "test_nothing": "another process"}
    assert detail.get(test.rpartition("::")[2], "") in raised.value.detail


@pytest.mark.parametrize("kernel", ["host", "gone", "OPS"])
def test_a_name_that_is_no_kernel_once_imported(worker: Worker, root: Path, kernel: str) -> None:
    with pytest.raises(WorkerFailed, match=f"has no Triton kernel {kernel} once it is imported"):
        record(worker, root, "calls", kernel)
