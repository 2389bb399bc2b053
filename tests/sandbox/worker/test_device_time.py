from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from kernelopt_bot.sandbox.worker import device_time
from kernelopt_bot.sandbox.worker.load import load
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.sessions import Session


def test_work_side_by_side_counts_once() -> None:
    assert device_time.union_length([]) == 0.0
    assert device_time.union_length([(5, 7), (0, 2), (1, 3), (1, 2)]) == 5.0


def test_work_belongs_to_the_call_that_its_middle_lies_in() -> None:
    windows = [(0.0, 10.0), (20.0, 30.0)]
    work = [(2.0, 4.0), (3.0, 5.0), (9.0, 10.5), (14.0, 18.0), (21.0, 29.0)]
    assert device_time.busy_in(windows, work) == [4.5, 8.0]


def test_marks_and_work_of_a_real_profile() -> None:
    """The host plays the device: operators are its work, and ranges that somebody named are none."""
    x = torch.randn(300, 300)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        for _ in range(3):
            torch.mm(x, x)
            with record_function(device_time.MARK), record_function("somebody's range"):
                torch.mm(x, x)
    events = profiler.events()
    assert events is not None
    windows, work = device_time.intervals(events, DeviceType.CPU)
    assert len(windows) == 3 and len(work) >= 6
    named = {e.name for e in events if e.is_user_annotation}
    assert named == {device_time.MARK, "somebody's range"}
    for busy, (start, end) in zip(device_time.busy_in(windows, work), windows, strict=True):
        assert 0 < busy <= end - start
    assert device_time.intervals(events, DeviceType.CUDA) == (windows, [])


def test_it_needs_a_gpu(loaded: Callable[..., Session]) -> None:
    with pytest.raises(WorkerFault, match="unsupported"):
        device_time.device_time(loaded("Chain", "narrow", "layers"), {
            "arm": {"name": "eager", "kind": "eager"}, "calls": 2})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_copy_takes_the_time_that_its_bytes_take(tmp_path: Path) -> None:
    """256 MiB to read and as much to write: between 50 GB/s and 20 TB/s."""
    (tmp_path / "copying.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\n"
        "def get_inputs():\n    return [torch.zeros(1 << 26)]\n")
    session = Session(tmp_path)
    load(session, {"root": str(tmp_path), "path": "copying.py", "entry": "Model", "inputs": "get_inputs", "init": "",
                   "mode": "inference", "device": "cuda:0", "seed": 1})
    found = device_time.device_time(session, {"arm": {"name": "eager", "kind": "eager"}, "calls": 5})
    assert len(found["device_s"]) == 5
    assert all((2 << 28) / 20e12 < t < (2 << 28) / 50e9 for t in found["device_s"])
