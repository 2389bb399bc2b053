from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.sandbox.worker.children import Nursery, run_each
from kernelopt_bot.sandbox.worker.protocol import WorkerFault


def children() -> set[str]:
    """Process numbers of this process's own children, the dead ones among them too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(stat.parent.name)
    return found


def crash() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def hang() -> dict[str, Any]:
    time.sleep(60)
    return {}


def refuse() -> dict[str, Any]:
    raise WorkerFault("compile_failed", "too much shared memory", "detail")


def stumble() -> dict[str, Any]:
    raise TypeError("unforeseen")


def silent() -> dict[str, Any]:
    os._exit(3)


@pytest.mark.parametrize("processes", [1, 4])
def test_each_job_has_its_own_end_in_order(processes: int) -> None:
    before = children()
    jobs = [lambda: {"pid": os.getpid()}, crash, refuse, stumble, silent, lambda: {"big": "x" * 300_000}]
    first, *bad, last = run_each(jobs, processes=processes, timeout_s=30)
    assert first["result"]["pid"] != os.getpid() and len(last["result"]["big"]) == 300_000
    assert [b["error"]["kind"] for b in bad] == ["compile_failed", "compile_failed", "bug", "compile_failed"]
    assert [b["error"]["message"] for b in bad] == [
        "the compiler ended with SIGSEGV", "too much shared memory", "TypeError: unforeseen",
        "the compiler ended with code 3"]
    assert children() == before, "none is left behind"


def test_what_hangs_is_ended_and_the_others_go_on() -> None:
    begin = time.monotonic()
    slow, quick = run_each([hang, lambda: {"n": 1}], processes=2, timeout_s=1.0)
    assert slow["error"] == {"kind": "compile_failed", "message": "no end within 1 s", "detail": ""}
    assert quick == {"result": {"n": 1}}
    assert time.monotonic() - begin < 10


def test_no_job_no_answer() -> None:
    assert run_each([], processes=2, timeout_s=1.0) == []


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("end"):
        os._exit(1)
    if request.get("refuse"):
        refuse()
    return {"pid": os.getpid(), "each": run_each([lambda: {"n": request["n"]}], processes=1, timeout_s=30)}


def test_a_nursery_forks_for_a_process_that_must_not() -> None:
    reader, writer = os.pipe()
    nursery = Nursery(answer)
    os.close(writer)
    assert os.read(reader, 1) == b"", "it holds none of the pipes that it was born with"
    os.close(reader)
    first, second = nursery.ask({"n": 1}), nursery.ask({"n": 2})
    assert first["pid"] == second["pid"] == nursery.pid and second["each"] == [{"result": {"n": 2}}]
    with pytest.raises(WorkerFault, match="shared memory"):
        nursery.ask({"refuse": True})
    with pytest.raises(WorkerFault, match="is gone"):
        nursery.ask({"end": True})
    nursery.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(nursery.pid, 0)


def test_a_nursery_ends_with_its_parent() -> None:
    nursery = Nursery(answer)
    nursery.close()
    with pytest.raises(ProcessLookupError):
        os.kill(nursery.pid, 0)
