"""nvidia-smi's words into states, and waiting for an idle GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.device.state import FIELDS, GpuState, gpus, parse_gpus, visible, wait_until_idle, why_busy
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.sandbox.gpu import device_minor, find_gpu, pick

FIRST, SECOND = "GPU-5d7e9e5c-11aa-22bb-33cc-44dd55ee66ff", "GPU-aaaaaaaa-1111-2222-3333-444444444444"
ROWS = (
    f"0, {FIRST}, NVIDIA H200, 00000000:1B:00.0, 570.133.20, 143771, 4, 0, 345, 75.66, 27, 0x0000000000000001\n"
    f"1, {SECOND}, NVIDIA H200, 00000000:43:00.0, 570.133.20, 143771, 53211, 98, 1980, 612.30, 55, 0x0000000000000000\n"
)
APPS = f"{SECOND}, 4321, /usr/bin/python3, 53200\n"
MIG = f"0, {FIRST}, NVIDIA H200, 00000000:1B:00.0, 570.133.20, 143771, 900, [N/A], [N/A], [N/A], [N/A], [N/A]\n"

SMI = """#!/bin/sh
case "$1" in
  --query-gpu={fields}) printf '%s' '{rows}';;
  --query-compute-apps=*) printf '%s' '{apps}';;
  *) exit 6;;
esac
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: str = ROWS, apps: str = APPS) -> None:
    program = folder / "nvidia-smi"
    program.write_text(SMI.format(fields=",".join(FIELDS), rows=rows, apps=apps))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_parse() -> None:
    idle, busy = parse_gpus(ROWS, APPS)
    assert (idle.index, idle.uuid, idle.name, idle.bus_id) == (0, FIRST, "NVIDIA H200", "00000000:1B:00.0")
    assert idle.memory_total == 143771 << 20 and idle.memory_used == 4 << 20 and idle.utilisation == 0
    assert idle.power_w == 75.66 and idle.throttle == "0x1" and idle.processes == ()
    assert busy.utilisation == 98 and busy.sm_clock_mhz == 1980 and busy.temperature_c == 55
    assert busy.processes[0].pid == 4321 and busy.processes[0].memory_bytes == 53200 << 20


def test_parse_what_the_driver_does_not_say() -> None:
    (mig,) = parse_gpus(MIG, f"{FIRST}, 77, [Not Found], [N/A]\n")
    assert mig.utilisation is None and mig.power_w is None and mig.throttle == "unknown"
    assert mig.processes[0].memory_bytes is None


@pytest.mark.parametrize("text", ["", "No devices were found\n", "Unable to determine the device handle, x\n", "\n\n"])
def test_parse_other_words(text: str) -> None:
    assert parse_gpus(text, text) == []


def test_why_busy() -> None:
    idle, busy = parse_gpus(ROWS, APPS)
    assert why_busy(idle) == ""
    assert "process 4321" in why_busy(busy)
    assert "98 %" in why_busy(busy, frozenset({4321}))
    (hidden,) = parse_gpus(ROWS.splitlines()[1].replace(", 98,", ", 0,"))
    assert "53211 MiB" in why_busy(hidden)


def test_through_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    assert [g.index for g in gpus()] == [0, 1]
    assert wait_until_idle(FIRST, timeout=0).uuid == FIRST
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert gpus() == []


def test_waits_then_says_who(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    now, told = [0.0], list[str]()
    with pytest.raises(Unavailable, match=r"GPU 1 .* busy: used by .*4321") as caught:
        wait_until_idle(SECOND, timeout=5, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s),
                        waiting=told.append)
    assert now[0] == 6.0 and "gpu_wait_s" in caught.value.fix
    assert len(told) == 1 and told[0].startswith("waiting up to 5 s for GPU 1 (NVIDIA H200): used by")

    def sleep(seconds: float) -> None:
        install(tmp_path, monkeypatch, rows=ROWS.replace("53211, 98", "4, 0"), apps="")

    assert wait_until_idle(SECOND, timeout=5, sleep=sleep).utilisation == 0
    with pytest.raises(Unavailable, match="is not there"):
        wait_until_idle("GPU-none", timeout=0)


def present() -> list[GpuState]:
    return parse_gpus(ROWS)


@pytest.mark.parametrize(("setting", "numbers"), [
    ("0", [0]), ("1", [1]), ("1,0", [1, 0]), (" 1 , 0 ", [1, 0]), ("", []), ("-1", []), ("1,-1,0", [1]), ("7,1", []),
    ("1,1", [1]), (SECOND, [1]), ("GPU-aaaa", [1]), ("GPU-", []), (f"{SECOND},0", [1, 0]), ("all", [])])
def test_what_cuda_shows(setting: str, numbers: list[int]) -> None:
    assert [g.index for g in visible(present(), setting)] == numbers
    assert visible(visible(present(), setting), setting) == visible(present(), setting)


def test_a_part_of_a_gpu_is_refused() -> None:
    with pytest.raises(Unavailable, match="MIG"):
        visible(present(), "MIG-5d7e9e5c-11aa-22bb-33cc-44dd55ee66ff")


def test_numbers_are_those_of_the_callers_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert pick("cuda:0", present()).uuid == pick("cuda", present()).uuid == pick(SECOND, present()).uuid == SECOND
    for hidden in ("cuda:1", FIRST):
        with pytest.raises(Unavailable) as caught:
            pick(hidden, present())
        assert caught.value.where == "present: cuda:0 (NVIDIA H200) with CUDA_VISIBLE_DEVICES=1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert pick("cuda:1", present()).uuid == FIRST
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert pick("cuda:1", present()).uuid == SECOND


def test_pick() -> None:
    assert pick("cuda", present()).index == 0 and pick("cuda:1", present()).index == 1
    assert pick(SECOND, present()).index == 1
    with pytest.raises(Unavailable, match="no GPU 'cuda:7'") as caught:
        pick("cuda:7", present())
    assert "cuda:1 (NVIDIA H200)" in caught.value.where


def test_nodes_of_the_assigned_gpu_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "sda"):
        (tmp_path / name).touch()
    gpu = find_gpu("cuda:1", dev=tmp_path)
    assert gpu is not None and gpu.visible == SECOND
    assert {node.name for node in gpu.nodes} == {"nvidia1", "nvidiactl", "nvidia-uvm"}
    assert find_gpu("cpu") is None and find_gpu("pretend") is None


def test_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    gpu = find_gpu("auto")
    assert gpu is not None and gpu.visible == FIRST
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert find_gpu("auto") is None


def test_without_nvidia_smi_the_drivers_files_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    for address, uuid in (("0000:43:00.0", SECOND), ("0000:1b:00.0", FIRST), ("0000:50:00.0", "??")):
        folder = tmp_path / address
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t NVIDIA H200\nIRQ: 5\nGPU UUID: \t {uuid}\nDevice Minor: 1\n")
    found = gpus(proc=tmp_path)
    assert [(g.index, g.uuid, g.name) for g in found] == [(0, FIRST, "NVIDIA H200"), (1, SECOND, "NVIDIA H200")]
    assert why_busy(found[0]) == ""


def test_minor_number_from_the_driver(tmp_path: Path) -> None:
    folder = tmp_path / "0000:43:00.0"
    folder.mkdir()
    (folder / "information").write_text("Model: \t\t NVIDIA H200\nDevice Minor: \t 5\n")
    assert device_minor("00000000:43:00.0", 1, proc=tmp_path) == 5
    assert device_minor("00000000:1B:00.0", 0, proc=tmp_path) == 0
