from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernelopt_bot.contract.candidate import KernelCandidate, Launch, OptionsCandidate, Parameter, Plan, Scratch
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.result import Trial

PLAN = Plan((Parameter("in_ptr0", "*fp32"), Parameter("out_ptr0", "*fp32", written=True, read=False)),
            (Launch("kernel", ("cdiv(1000, 256)",), ("in_ptr0", "partial"), {"XBLOCK": 256}, 8, 2),),
            (Scratch("partial", "num_sms * 2", "float32", zeroed=True),))


def kernel(name: str, source: str = "import triton\n") -> Trial:
    candidate = KernelCandidate(name, "run", 0, (3, 4), source, PLAN, "cache_hints", rationale="why", parent="other")
    verdict = Verdict("static", Status.PASS, "", {"registers": [32, 40]}, 0.25)
    return Trial(candidate, (verdict, Verdict("correctness", Status.FAIL, "off by 1.0")), step_speedup=1.25,
                 before_us=10.0, after_us=8.0, note="n")


def options(name: str) -> Trial:
    return Trial(OptionsCandidate(name, "launch", {"triton.cudagraphs": True}, "graphs"), (), adopted=True)


def test_what_was_written_is_read_back_equal(tmp_path: Path) -> None:
    trials = (kernel("a"), options("b"))
    archive = Archive(tmp_path / "run")
    for trial in trials:
        archive.append(trial)
    assert Archive(tmp_path / "run").load() == trials
    assert Archive(tmp_path / "run").tried() == {"a", "b"}


def test_each_trial_is_one_line(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.append(kernel("a", "first\nsecond\n"))
    archive.append(options("b"))
    assert len(archive.path.read_text().splitlines()) == 2


def test_a_later_record_of_a_candidate_replaces_the_earlier(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.append(options("a"))
    archive.append(options("b"))
    later = Trial(options("a").candidate, (), note="measured again")
    archive.append(later)
    assert archive.load() == (later, options("b"))


@pytest.mark.parametrize("tail", [b'{"schema": 1, "dig', b"\xff\xfe\n", b"[]\n", b'{"schema": 9}\n'])
def test_a_torn_or_foreign_tail_is_cut_off_and_the_rest_kept(tmp_path: Path, tail: bytes) -> None:
    archive = Archive(tmp_path)
    archive.append(kernel("a"))
    with archive.path.open("ab") as stream:
        stream.write(tail)
    again = Archive(tmp_path)
    assert again.load() == (kernel("a"),)
    again.append(options("b"))
    assert Archive(tmp_path).load() == (kernel("a"), options("b"))


def test_a_changed_record_does_not_count(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.append(kernel("a"))
    record = json.loads(archive.path.read_text())
    record["trial"]["adopted"] = True
    archive.path.write_text(json.dumps(record) + "\n")
    assert Archive(tmp_path).load() == ()


def test_what_was_appended_survives_a_killed_process(tmp_path: Path) -> None:
    program = ("import os, signal, sys\nfrom pathlib import Path\nfrom kernelopt_bot.search.archive import Archive\n"
               "from kernelopt_bot.contract.candidate import OptionsCandidate\n"
               "from kernelopt_bot.search.result import Trial\n"
               "Archive(Path(sys.argv[1])).append(Trial(OptionsCandidate('a', 'launch', {}, 't'), ()))\n"
               "os.kill(os.getpid(), signal.SIGKILL)\n")
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert Archive(tmp_path).tried() == {"a"}


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes of a file fail, as on a full disk (the kernel answers EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_write_that_does_not_fit_leaves_nothing_half_written(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.append(options("a"))
    before = archive.path.read_bytes()
    with file_size_limit(len(before) + 100), pytest.raises(Unavailable) as caught:
        archive.append(kernel("b", "x" * 4096))
    assert caught.value.fix and "x" * 10 not in str(caught.value)
    assert archive.path.read_bytes() == before
    archive.append(options("c"))
    assert Archive(tmp_path).tried() == {"a", "c"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.path = Path("/dev/full")
    with pytest.raises(Unavailable, match="disk is full"):
        archive.append(options("a"))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable) as caught:
        Archive(tmp_path / "file" / "run")
    assert caught.value.kind == "unwritable" and str(tmp_path) not in str(caught.value)


def test_the_file_is_private(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.append(options("a"))
    assert os.stat(archive.path).st_mode & 0o077 == 0
