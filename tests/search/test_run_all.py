"""The run's device, and what stays of a run that ends early."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.config import Config
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.search.deadline import NEVER, Deadline
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.run import Device, device_of, devices_of, run_all
from kernelopt_bot.targets.target import Target
from tests.device.test_state import FIRST, SECOND, install

pytestmark = pytest.mark.slow


def config(**given: object) -> Config:
    return Config.model_validate({"version": 1, **given})


def test_the_device_that_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    assert device_of(config(device="cpu")) == device_of(config(device="pretend")) == ("cpu", "cpu")
    assert device_of(config(device="auto")) == (FIRST, "cuda")
    assert device_of(config(device="cuda:1")) == (SECOND, "cuda")
    with pytest.raises(Unavailable, match="cuda:7"):
        device_of(config(device="cuda:7"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert device_of(config(device="cuda:0")) == device_of(config(device="auto")) == (SECOND, "cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device_of(config(device="auto")) == ("cpu", "cpu")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert device_of(config(device="auto")) == ("cpu", "cpu")
    with pytest.raises(Unavailable):
        device_of(config(device="cuda"))


def test_several_devices_are_named_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    assert devices_of(config(device="cuda:1,cuda:0,cuda:1")) == ((SECOND, "cuda"), (FIRST, "cuda"))
    assert device_of(config(device="cuda:1,cuda:0")) == (SECOND, "cuda")
    with pytest.raises(Unavailable, match="cuda:7"):
        devices_of(config(device="cuda:0,cuda:7"))


def test_a_device_whose_minutes_are_spent_takes_no_target(tmp_path: Path) -> None:
    def device(minutes: float, left: float, deadline: Deadline = NEVER) -> Device:
        return Device(config(device="cpu", budget={"gpu_minutes": minutes}), tmp_path, tmp_path, tmp_path,
                      ProcessJail(), "python", "cpu", "cpu", Silent(), None, deadline, left)

    assert device(2, 0.0).refuses() == "the 2 GPU minutes of the run are spent"
    assert device(2, 1.0).refuses() == ""
    assert device(2, 1.0, Deadline(0.0)).refuses() == "the job's time limit is near"


def test_a_record_that_cannot_be_kept_ends_the_run_and_keeps_what_was_finished(tmp_path: Path) -> None:
    """The second target's folder is a file; the first was finished, the third is not begun."""
    (tmp_path / "net.py").write_text("import nothing_that_exists\n\nclass Model: ...\n\ndef get_inputs(): ...\n")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "second").write_text("in the way")
    targets = [Target(name, "net.py", "Model", "get_inputs") for name in ("first", "second", "third")]
    finished = run_all(targets, config=config(device="cpu", sandbox="process"), root=tmp_path, base=tmp_path,
                       folder=folder, progress=Silent())
    assert [r.target.name for r in finished.results] == ["first"]
    assert "nothing_that_exists" in finished.results[0].error and finished.results[0].bad_input
    assert finished.stopped.startswith("second: The run folder cannot be written")
    assert not finished.interrupted and finished.bug is None
    assert not (folder / "scratch").exists() and not (folder / "third").exists()


def test_a_bug_ends_the_run_and_keeps_what_was_finished(tmp_path: Path) -> None:
    class Broken(Silent):
        def update(self, text: str, done: int = 0, of: int = 0) -> None:
            if text.startswith("second"):
                raise ZeroDivisionError("ours")

    (tmp_path / "net.py").write_text("import nothing_that_exists\n")
    targets = [Target(name, "net.py", "Model", "get_inputs") for name in ("first", "second", "third")]
    finished = run_all(targets, config=config(device="cpu", sandbox="process"), root=tmp_path, base=tmp_path,
                       folder=tmp_path / "run", progress=Broken())
    assert [r.target.name for r in finished.results] == ["first"]
    assert isinstance(finished.bug, ZeroDivisionError) and "ZeroDivisionError" in finished.stopped
    assert not (tmp_path / "run/scratch").exists()
