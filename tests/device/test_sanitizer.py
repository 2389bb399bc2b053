"""compute-sanitizer: its output read, its process judged, and on a GPU planted errors found."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.device import sanitizer
from kernelopt_bot.device.sanitizer import Sanitizer, Tool, judge, messages, options, parse
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.jail import ProcessJail
from tests.sandbox.worker.sources import IMPORTS
from tests.sandbox.worker.test_golden import CANDIDATE, pointwise

# Written down from the tool's manual (Compute Sanitizer, "Memcheck Tool", "Racecheck Tool") with our kernel's name.
OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at triton_softsign+0x160 in candidate.py:12
=========     by thread (0,0,0) in block (31,0,0)
=========     Address 0x7f6a3fe01000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6a3fe00000 of size 4,096 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to \
cudaDeviceSynchronize.
========= Error: process didn't terminate successfully
========= ERROR SUMMARY: 1,026 errors
========= ERROR SUMMARY: 926 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at triton_sum+0x90 in candidate.py:41
=========     and Read access at triton_sum+0x100 in candidate.py:51 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
OLDER_RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at 0x460 in triton_sum
========= and Read access at 0x7a0 in triton_sum [508 hazards]
========= RACECHECK SUMMARY: 12 hazards displayed (2 errors, 10 warnings)
"""
WARNING = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at triton_sum+0x550
=========     and Read access at triton_sum+0x580 [32 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
CLEAN: dict[Tool, str] = {
    "memcheck": "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= COMPUTE-SANITIZER\n"
                 "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"}
# Word for word from release 2026.4 on a machine without a driver.
NOTHING_RUN = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host. Please rerun the \
application under cuda-gdb or a host debugger to catch host side errors.
========= Error: Target application terminated before first instrumented API call
"""
RAN = json.dumps({"ran": 1, "error": ""})


@pytest.mark.parametrize(("tool", "log", "words"), [
    ("memcheck", OUT_OF_BOUNDS, "memcheck: 1026 errors: Invalid __global__ write of size 4 bytes at triton_softsign"),
    ("racecheck", RACE, "racecheck: 1 errors: Error: Race reported between Write access at triton_sum+0x90"),
    ("racecheck", OLDER_RACE, "and Read access at 0x7a0 in triton_sum [508 hazards]"),
])
def test_what_a_kernel_did_fails_it_in_the_tools_words(tool: Tool, log: str, words: str) -> None:
    for answer in (RAN, "", json.dumps({"ran": 0, "error": "runtime_failed: unspecified launch failure"})):
        found = judge(tool, log, answer, 1)
        assert found.status is Status.FAIL and words in found.reason


@pytest.mark.parametrize("tool", sanitizer.TOOLS)
def test_a_clean_summary_counts_only_where_every_candidate_ran(tool: Tool) -> None:
    assert judge(tool, CLEAN[tool], RAN, 1) == sanitizer.Finding(Status.PASS)
    for answer in ("", "{}", "[]", json.dumps({"ran": 0, "error": ""}), json.dumps({"ran": 1, "error": "x"})):
        assert judge(tool, CLEAN[tool], answer, 1).status is Status.NOT_MEASURED
    assert judge(tool, CLEAN[tool], RAN, 2).status is Status.NOT_MEASURED


def test_warnings_are_no_failure() -> None:
    assert judge("racecheck", WARNING, RAN, 1).status is Status.PASS


@pytest.mark.parametrize(("log", "said", "words"), [
    (NOTHING_RUN, "", "process didn't terminate successfully"),
    ("", "unrecognised option '--padding'", "unrecognised option"),
    ("", "", "wrote nothing"),
    ("========= COMPUTE-SANITIZER\n========= Program hit cudaErrorInitializationError (error 3)\n"
     "========= ERROR SUMMARY: 1 error\n", "", "cudaErrorInitializationError"),
    ("========= COMPUTE-SANITIZER\n========= Internal Sanitizer Error: out of memory\n"
     "========= ERROR SUMMARY: 1 error\n", "", "Internal Sanitizer Error"),
])
def test_the_tools_own_trouble_is_no_failure_of_the_candidate(log: str, said: str, words: str) -> None:
    found = judge("memcheck", log, "", 1, said)
    assert found.status is Status.NOT_MEASURED and words in found.reason


def test_messages_are_one_line_each() -> None:
    assert len(messages(OUT_OF_BOUNDS)) == 3
    assert messages(RACE) == (
        "Error: Race reported between Write access at triton_sum+0x90 in candidate.py:41 "
        "and Read access at triton_sum+0x100 in candidate.py:51 [508 hazards]",)
    assert parse("memcheck", RACE) is None and parse("racecheck", OUT_OF_BOUNDS) is None


def test_each_tool_has_its_options() -> None:
    memory, race = options("memcheck", Path("log")), options("racecheck", Path("log"))
    assert "--padding" in memory and "--padding" not in race and "--racecheck-report" in race


STAND_IN = """#!{python}
import json, os, subprocess, sys
arguments = sys.argv[1:]
log, tool = arguments[arguments.index("--log-file") + 1], arguments[arguments.index("--tool") + 1]
folder = os.path.dirname(log)
steps = json.load(open(os.path.join(folder, "request.json")))
assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1" and arguments[-4:-1] == ["-I", "-B", "-c"]
guilty = any("bad" in s["candidate"]["source"] for s in steps["steps"]) and steps["run"] == "candidate"
text = {logs!r}[tool + str(guilty or any("hard" in s["candidate"]["source"] for s in steps["steps"]))]
open(log, "w").write(text)
json.dump({{"ran": len(steps["steps"]), "error": ""}}, open(os.path.join(folder, "answer.json"), "w"))
"""


def stand_in(folder: Path, body: str | None = None) -> Sanitizer:
    """A program with the tool's command line that accuses sources by a word."""
    path = folder / "tool" / "bin" / sanitizer.NAME
    path.parent.mkdir(parents=True)
    logs = {"memcheckFalse": CLEAN["memcheck"], "racecheckFalse": CLEAN["racecheck"], "memcheckTrue": OUT_OF_BOUNDS,
            "racecheckTrue": RACE}
    path.write_text(body or STAND_IN.format(python=sys.executable, logs=logs))
    path.chmod(0o755)
    return Sanitizer(path, sys.executable, ProcessJail(), folder / "scratch", "cpu", limit_s=30)


def step(source: str) -> dict[str, Any]:
    return {"candidate": {"source": source}}


def test_all_candidates_go_together_and_alone_only_where_something_was_found(tmp_path: Path) -> None:
    tool = stand_in(tmp_path)
    assert [f.status for f in tool.examine("memcheck", [step("good"), step("fine")])] == [Status.PASS] * 2
    found = tool.examine("racecheck", [step("good"), step("bad"), step("fine")])
    assert [f.status for f in found] == [Status.PASS, Status.FAIL, Status.PASS]


def test_steps_that_take_too_long_together_do_not_take_as_long_again_alone(tmp_path: Path) -> None:
    tool = replace(stand_in(tmp_path, "#!/bin/sh\nexec sleep 60\n"), limit_s=-9.0)
    begin = time.monotonic()
    found = tool.examine("memcheck", [step("good"), step("fine"), step("good")])
    assert [f.status for f in found] == [Status.NOT_MEASURED] * 3 and time.monotonic() - begin < 10
    assert all("longer than 1 s" in f.reason for f in found)


def test_a_race_in_the_compilers_own_kernel_accuses_nobody(tmp_path: Path) -> None:
    tool = stand_in(tmp_path)
    (found,) = tool.examine("racecheck", [step("hard")])
    assert found.status is Status.NOT_MEASURED and "own kernel" in found.reason
    assert tool.examine("memcheck", [step("hard")])[0].status is Status.FAIL


@pytest.mark.parametrize(("body", "words"), [
    ("#!/bin/sh\nsleep 60\n", "longer than 1 s"), ("#!/bin/sh\necho no driver\nexit 3\n", "no driver"),
    ("not a program", "Exec format error"),
])
def test_a_tool_that_does_not_work_blocks_nothing(tmp_path: Path, body: str, words: str) -> None:
    tool = Sanitizer(**{**vars(stand_in(tmp_path, body)), "limit_s": 1.0 if "sleep" in body else 30.0})
    (found,) = tool.examine("memcheck", [step("bad")])
    assert found.status is Status.NOT_MEASURED and words in found.reason


PAST_THE_END = CANDIDATE.replace("tl.store(out_ptr0 + i, x / (1.0 + tl_math.abs(x)), i < n)",
                                 "tl.store(out_ptr0 + i + 1, x / (1.0 + tl_math.abs(x)), i < n)")
READ_PAST_THE_END = CANDIDATE.replace("in_ptr0 + i, i < n)", "in_ptr0 + i + 1, i < n)")
# All threads of a block write their own index to one word of shared memory, and no barrier stands between the warps.
RACING = IMPORTS + '''
@triton.jit
def softsign(in_ptr0, out_ptr0, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(in_ptr0 + i, i < n)
    word = tl.inline_asm_elementwise(
        "{ .shared .align 4 .b32 cell; .reg .b32 t; mov.u32 t, %tid.x; st.volatile.shared.b32 [cell], t; "
        "ld.volatile.shared.b32 $0, [cell]; }", "=r,r", [i], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out_ptr0 + i, x / (1.0 + tl_math.abs(x)) + 0.0 * word.to(tl.float32), i < n)
'''


def planted(source: str) -> dict[str, Any]:
    """A pointwise step of one block of 8 warps: only the last element lies past the end."""
    params = pointwise(1 << 16, "cuda")
    return {**params, "candidate": {**params["candidate"], "source": source}, "families": ["normal"]}


INTERPRETED = """#!/bin/sh
# Without a GPU: the program that the tool would start, its kernels interpreted, and a clean summary.
while [ "$1" != "--launch-timeout" ]; do
  if [ "$1" = "--log-file" ]; then echo "========= ERROR SUMMARY: 0 errors" > "$2"; fi
  shift
done
shift 2
TRITON_INTERPRET=1 exec "$@"
"""


@pytest.mark.parametrize(("source", "words"), [
    (CANDIDATE, ""), (PAST_THE_END, "a store touches 1 elements"), (READ_PAST_THE_END, "a load touches 1 elements")])
def test_the_candidate_is_launched_in_memory_that_ends_with_its_buffers(
    tmp_path: Path, source: str, words: str
) -> None:
    tool = stand_in(tmp_path, INTERPRETED)
    (found,) = tool.examine("memcheck", [{**planted(source), "lane": "interpret"}])
    assert found.status is (Status.NOT_MEASURED if words else Status.PASS), found
    assert words in found.reason


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available() or sanitizer.find() is None, reason="no GPU, or no compute-sanitizer")
@pytest.mark.parametrize(("tool", "source", "status", "words"), [
    ("memcheck", CANDIDATE, Status.PASS, ""), ("racecheck", CANDIDATE, Status.PASS, ""),
    ("memcheck", PAST_THE_END, Status.FAIL, "Invalid __global__ write"),
    ("memcheck", READ_PAST_THE_END, Status.FAIL, "Invalid __global__ read"),
    ("racecheck", RACING, Status.FAIL, "Race reported"),
])
def test_planted_errors_are_found(tmp_path: Path, tool: Tool, source: str, status: Status, words: str) -> None:
    path = sanitizer.find()
    assert path is not None and (source == CANDIDATE) == (status is Status.PASS)
    at = Sanitizer(path, sys.executable, ProcessJail(), tmp_path / "scratch", "cuda:0", limit_s=120)
    (found,) = at.examine(tool, [planted(source)])
    assert found.status is status and words in found.reason, found
