"""NVIDIA's compute-sanitizer over finalists: accesses outside of buffers (memcheck), races in shared memory.

Each tool runs once over all candidates in a process of its own, in the jail; only where it finds something is each
candidate run alone, to know whose it is. Options and forms of the output: NVIDIA, Compute Sanitizer, "Command Line
Options", "Memcheck Tool", "Racecheck Tool". What the tool cannot say never blocks an adoption.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kernelopt_bot import process
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.gpu import find_gpu
from kernelopt_bot.sandbox.jail import Box, Jail
from kernelopt_bot.sandbox.staging import staged_package
from kernelopt_bot.sandbox.worker_environment import worker_environment

Tool = Literal["memcheck", "racecheck"]
TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck")
NAME = "compute-sanitizer"
LIMIT_S, STEP_S = 60.0, 5.0
"""Of one process, and more for each step: an import of torch; a compilation and some launches, which the tool slows
down up to a hundred times."""
LIMIT_BYTES = 1 << 30
"""Buffers of a step; beyond, the instrumented launch alone would take too long."""
PADDING = 1 << 16
"""Bytes behind each allocation that belong to none, so that a neighbour does not hide an access past the end."""
ERROR_CODE = 86
WORDS_LIMIT = 1200

# The tool is started by the jailed interpreter: a jail binds interpreters, and knows no other program.
_EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
_SCRIPT = ("import sys; sys.path.insert(0, {package!r}); from kernelopt_bot.sandbox.worker.sanitize import main; "
           "sys.exit(main({folder!r}))")
_ERRORS = re.compile(r"^=+ ERROR SUMMARY: ([\d,]+) errors?\s*$", re.MULTILINE)
_HAZARDS = re.compile(r"^=+ RACECHECK SUMMARY: [\d,]+ hazards? displayed \(([\d,]+) errors?, ([\d,]+) warnings?\)",
                      re.MULTILINE)
_DEVICE = re.compile(r"Invalid |Misaligned |Error: Race reported|Error: .*hazard|Out-of-range |Stack overflow|"
                     r"Illegal |Hardware exception", re.IGNORECASE)
_SKIPPED = re.compile(r"COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|$")


@dataclass(frozen=True)
class Report:
    """What the tool wrote."""

    errors: int
    """Of the summary line."""
    blocks: tuple[str, ...]
    """Its messages, a line each."""

    @property
    def of_device(self) -> tuple[str, ...]:
        """Those about what a kernel did; others are about the process or the tool itself."""
        return tuple(b for b in self.blocks if _DEVICE.match(b))


@dataclass(frozen=True)
class Finding:
    """What one tool says about one candidate."""

    status: Status
    reason: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "status": self.status.value}


ABSENT = Finding(Status.NOT_APPLICABLE, f"{NAME} is not installed")
UNCONNECTED = Finding(Status.NOT_MEASURED, f"{NAME} connects to the program that it watches, which this jail forbids: "
                      "with `sandbox: docker` or `bubblewrap` it can")


def find() -> Path | None:
    """The tool on PATH or where the CUDA toolkit puts it; None where it is not installed."""
    found = shutil.which(NAME)
    places = [Path(found)] if found else []
    places += [Path("/usr/local/cuda/bin") / NAME, Path("/opt/cuda/bin") / NAME]
    places += sorted(Path("/usr/local").glob(f"cuda-*/bin/{NAME}"), reverse=True)
    return next((p.absolute() for p in places if p.is_file()), None)


def parse(tool: Tool, text: str) -> Report | None:
    """The tool's text output; None if it did not come to its summary."""
    summary = (_ERRORS if tool == "memcheck" else _HAZARDS).search(text)
    if summary is None:
        return None
    return Report(int(summary.group(1).replace(",", "")), messages(text))


def messages(text: str) -> tuple[str, ...]:
    """Each message of the output with its continuation, in one line."""
    blocks: list[str] = []
    for line in text.splitlines():
        begin = re.match(r"=+( *)(.*)", line)
        if begin is None:
            continue
        words = begin.group(2).strip()
        if len(begin.group(1)) > 1 or words.startswith("and "):
            if blocks and words:
                blocks[-1] += f" {words}"
        elif not _SKIPPED.match(words):
            blocks.append(words)
    return tuple(b[:WORDS_LIMIT] for b in blocks)


def options(tool: Tool, log: Path) -> tuple[str, ...]:
    """The command line between the tool's name and the program's."""
    own = (("--padding", str(PADDING), "--report-api-errors", "no") if tool == "memcheck" else
           ("--racecheck-report", "analysis"))
    return ("--tool", tool, *own, "--log-file", str(log), "--target-processes", "application-only", "--print-limit",
            "20", "--show-backtrace", "no", "--error-exitcode", str(ERROR_CODE), "--launch-timeout", "30")


@dataclass(frozen=True)
class Sanitizer:
    """The installed tool over steps, in a jail on one GPU."""

    path: Path
    python: str
    jail: Jail
    scratch: Path
    """Of the jailed process; tensors that the steps refer to lie here."""
    device: str
    limit_s: float = LIMIT_S

    def examine(self, tool: Tool, steps: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
        """A finding for each step (parameters of `check_step`).

        An accusation is looked into to the end. Where the tool only did not come to its end, the steps run alone for
        as long as all of them together may take; where that time was used up already, none does.
        """
        begin = time.monotonic()
        together = self._judged(tool, steps)
        if together.status is Status.PASS or len(steps) == 1:
            return (together,) * len(steps)
        end = math.inf if together.status is Status.FAIL else begin + self.limit(steps)
        found: list[Finding] = []
        for step in steps:
            found.append(self._judged(tool, [step]) if time.monotonic() < end else
                         Finding(Status.NOT_MEASURED, together.reason))
        return tuple(found)

    def limit(self, steps: Sequence[Mapping[str, Any]]) -> float:
        """Seconds of one process over them."""
        return self.limit_s + STEP_S * (len(steps) - 1)

    def _judged(self, tool: Tool, steps: Sequence[Mapping[str, Any]]) -> Finding:
        begin = time.monotonic()
        finding = self._run(tool, steps, "candidate")
        doubtful = tool == "racecheck" and len(steps) == 1 and finding.status is Status.FAIL
        if doubtful and self._run(tool, steps, "baseline").status is Status.FAIL:
            # A tool that accuses the compiler's own kernel does not understand this kind of kernel.
            finding = Finding(Status.NOT_MEASURED, f"{tool} reports races in the compiler's own kernel too")
        return Finding(finding.status, finding.reason, time.monotonic() - begin)

    def _run(self, tool: Tool, steps: Sequence[Mapping[str, Any]], who: str) -> Finding:
        log, answer = self.scratch / f"{tool}.log", self.scratch / "answer.json"
        self.scratch.mkdir(parents=True, exist_ok=True)
        for old in (log, answer):
            old.unlink(missing_ok=True)
        request = {"steps": [dict(s) for s in steps], "run": who}
        (self.scratch / "request.json").write_text(json.dumps(request))
        launch, limit = self.jail.wrap(self._box(tool, log)), self.limit(steps)
        try:
            done = process.run(launch.command, timeout=limit, environment=launch.environment,
                               pass_fds=launch.pass_fds, check=False)
            said = done.stdout + done.stderr
        except process.ProcessTimeout:
            return Finding(Status.NOT_MEASURED, f"{tool} took longer than {limit:g} s")
        except process.ProcessError as e:
            return Finding(Status.NOT_MEASURED, f"{tool} did not run: {e.why}")
        finally:
            launch.finish()
        return judge(tool, _text(log), _text(answer), len(steps), said)

    def _box(self, tool: Tool, log: Path) -> Box:
        package, gpu = staged_package(), find_gpu(self.device)
        script = _SCRIPT.format(package=str(package), folder=str(self.scratch))
        folder = self.path.resolve().parent.parent
        return Box(
            python=self.python,
            arguments=("-I", "-B", "-c", _EXEC, str(self.path), *options(tool, log), self.python, "-I", "-B", "-c",
                       script),
            environment=worker_environment(
                python=self.python, scratch=self.scratch, visible_gpu=gpu.visible if gpu else "", interpret=False,
                extra={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}),
            scratch=self.scratch, readable=(package, *([folder] if len(folder.parts) > 2 else [])),
            devices=gpu.nodes if gpu else ())


def judge(tool: Tool, log: str, answer: str, steps: int, said: str = "") -> Finding:
    """The finding over a process that ended. A clean summary counts only where every step was launched: a tool that
    does not fit the driver writes one without starting anything."""
    report = parse(tool, log)
    if report is not None and report.errors and report.of_device:
        return Finding(Status.FAIL, f"{tool}: {report.errors} errors: {report.of_device[0]}")
    try:
        told = json.loads(answer)
        ran, error = int(told["ran"]), str(told["error"])
    except (ValueError, KeyError, TypeError):
        ran, error = 0, ""
    if report is not None and not report.errors and ran == steps and not error:
        return Finding(Status.PASS)
    why = next(iter(messages(log)), "") or error or " ".join(said.split())[-300:] or "it wrote nothing"
    return Finding(Status.NOT_MEASURED, f"{tool} did not come to an end: {why}"[:WORDS_LIMIT])


def _text(path: Path) -> str:
    """What the jailed process left there; '' for anything but a plain file of reasonable size."""
    with contextlib.suppress(OSError):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= process.OUTPUT_LIMIT:
            return path.read_text(errors="replace")
    return ""
