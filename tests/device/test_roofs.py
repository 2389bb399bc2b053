import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.device import roofs
from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.errors import Unavailable

GPU = {"name": "NVIDIA H200", "uuid": "GPU-0a1b2c3d-1111-2222-3333-444455556666", "driver": "580.1"}
ANSWER = {"copy_bytes_per_s": 4.1e12, "matrix_flops_per_s": {"float32": 5e13, "bfloat16": 7e14}, "l2_bytes": 62914560,
          "multiprocessors": 132, "peak_bytes_per_s": 0}


class Worker:
    """Counts measurements; answers with a recorded one."""

    def __init__(self, **changes: Any) -> None:
        self.asked, self.answer = 0, {**ANSWER, **changes}

    def __call__(self, method: str, params: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        assert method == "roofs"
        self.asked += 1
        return self.answer


def measured(worker: Worker, folder: Path, gpu: dict[str, str] = GPU) -> Roofs:
    return roofs.measured(worker, gpu, folder=folder, today=lambda: datetime.date(2026, 1, 2))


def test_measured_once_and_cached_per_gpu(tmp_path: Path) -> None:
    worker = Worker()
    first = measured(worker, tmp_path)
    assert measured(worker, tmp_path) == first
    assert worker.asked == 1
    assert (first.copy_bytes_per_s, first.peak_bytes_per_s, first.measured_on) == (4.1e12, 4.8e12, "2026-01-02")
    measured(worker, tmp_path, {**GPU, "uuid": GPU["uuid"][:-1] + "7"})
    assert worker.asked == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_another_driver_is_measured_anew(tmp_path: Path) -> None:
    worker = Worker()
    measured(worker, tmp_path)
    measured(worker, tmp_path, {**GPU, "driver": "590"})
    assert worker.asked == 2


@pytest.mark.parametrize("damage", [
    lambda d: "not json", lambda d: "[]", lambda d: json.dumps({**d, "schema": 2}),
    lambda d: json.dumps({**d, "roofs": {**d["roofs"], "copy_bytes_per_s": -1}}),
    lambda d: json.dumps({**d, "roofs": {**d["roofs"], "copy_bytes_per_s": "4e12"}}),
    lambda d: json.dumps({**d, "roofs": {**d["roofs"], "extra": 1}}),
    lambda d: json.dumps({**d, "roofs": {**d["roofs"], "uuid": "GPU-other000"}}),
    lambda d: json.dumps({**d, "roofs": None}),
])
def test_a_damaged_cache_is_measured_anew(tmp_path: Path, damage: Any) -> None:
    worker = Worker()
    first = measured(worker, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(damage(json.loads(path.read_text())))
    assert measured(worker, tmp_path) == first
    assert worker.asked == 2


@pytest.mark.parametrize("changes", [
    {"copy_bytes_per_s": 0}, {"copy_bytes_per_s": float("nan")}, {"copy_bytes_per_s": None}, {"copy_bytes_per_s": 6e12},
    {"matrix_flops_per_s": {"float32": -1}}, {"matrix_flops_per_s": []}, {"l2_bytes": True},
])
def test_what_cannot_be_is_not_cached(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        measured(Worker(**changes), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_strange_uuid_never_becomes_a_path(tmp_path: Path) -> None:
    worker = Worker()
    gpu = {**GPU, "uuid": "../../GPU-escape"}
    measured(worker, tmp_path / "cache", gpu)
    measured(worker, tmp_path / "cache", gpu)
    assert worker.asked == 2
    assert list(tmp_path.rglob("*.json")) == []


def test_an_unwritable_cache_costs_only_a_measurement(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert measured(Worker(), tmp_path / "file").copy_bytes_per_s == 4.1e12


def test_specification() -> None:
    assert roofs.specification("NVIDIA H200") == 4.8e12
    assert roofs.specification("NVIDIA Imaginary") is None


def test_assumed_and_pretended_say_so() -> None:
    assert roofs.assumed("a processor", cores=4).source == "assumed"
    assert roofs.pretended().source == "specification"
