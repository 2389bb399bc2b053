"""A user's Triton kernel through recording, gates 1 and 2 and the edit, without a GPU."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kernelopt_bot.cli.main import group
from kernelopt_bot.compiler.plain_triton import plain_kernel
from kernelopt_bot.config import Config
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.gates import correctness, static
from kernelopt_bot.gates.answers import Malformed
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.bubblewrap import BubblewrapJail
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import triton_lever
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.triton_calls import Case, TritonConfig
from kernelopt_bot.targets.triton_edit import Settings, edited, handle
from kernelopt_bot.targets.triton_kernels import TritonTarget, imported
from tests.search.conftest import begun

EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"
LAUNCH = """

def checked(device):
    rows = torch.randn(6, 48, device=device)[:, :40]
    gate, up = rows.chunk(2, dim=1)
    for _ in range(3):
        assert torch.allclose(swiglu(rows.contiguous()), torch.nn.functional.silu(gate) * up, atol=1e-5)
    swiglu(rows.half().contiguous())
"""
TARGET = TritonTarget("ops", "ops.py", "swiglu_kernel", "checked")


def session(tmp: Path, **given: object) -> Session:
    return begun(tmp / "project", tmp / "run", Config.model_validate({"device": "cpu", **given}), TARGET)


@dataclasses.dataclass
class Recorded:
    work: triton_lever.Work
    worker: Worker
    answer: dict[str, Any]

    @property
    def case(self) -> Case:
        return self.work.cases[0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """The example with a launch of each of two kinds, recorded in a jail."""
    tmp = tmp_path_factory.mktemp("lever")
    (tmp / "project").mkdir()
    text = (EXAMPLES / "swiglu.py").read_text() + LAUNCH
    (tmp / "project" / "ops.py").write_text(text)
    made, tree = session(tmp), ast.parse(text)
    work = triton_lever.Work(made, TARGET, text.encode(), plain_kernel(tree, TARGET.entry, imported(tree)),
                             Trials(made.archive, made.budget), {})
    with made.model_worker("model", interpret=True) as worker:
        answer = triton_lever.record(work, worker)
        work.cases = triton_lever.cases_of(answer, work.plain, 90, 132)
        yield Recorded(work, worker, answer)


@pytest.fixture(scope="module")
def interpreter(recorded: Recorded) -> Iterator[Worker]:
    with recorded.work.session.kernel_worker("interpret", interpret=True) as worker:
        yield worker


def gate_2(recorded: Recorded, interpreter: Worker, candidate: KernelCandidate, at: int = 0) -> Verdict:
    case = recorded.work.cases[at]
    return correctness.check_spot(
        candidate, case.baseline_json(), lend(list(case.arguments), recorded.worker.scratch, interpreter.scratch),
        interpreter, lane="interpret", secret="ab" * 16, precision=recorded.work.session.precision(), budget_s=20)


def rewritten(case: Case, change: str) -> KernelCandidate:
    """The user's own launch over a source in which some words are others: `old -> new`."""
    old, new = change.split(" -> ")
    assert old in case.source, case.source
    return case.candidate(case.plan, case.source.replace(old, new), "by hand", "")


def test_the_mix_is_recorded_as_plans(recorded: Recorded) -> None:
    first, second = recorded.work.cases
    assert (first.count, second.count, recorded.work.main) == (3, 1, 0)
    assert first.launch.grid == ("1",) and first.callable_grid and first.constexprs == {"BLOCK": 1024}
    assert [(p.name, p.type, p.read, p.written) for p in first.plan.parameters] == [
        ("gate_up_ptr", "*fp32", True, False), ("out_ptr", "*fp32", False, True), ("n_cols", "i32", True, False),
        ("n_elements", "i32", True, False)]
    assert second.plan.parameters[0].type == "*fp16" and second.reads == ("gate_up_ptr",)
    assert first.launched == "grid 1, BLOCK=1024, num_warps=4, num_stages=3"
    assert first.covered == "gate_up_ptr: (6, 40) float32, out_ptr: (6, 20) float32, n_cols=20, n_elements=120"


def test_an_honest_rewrite_passes_gate_2_on_all_families(recorded: Recorded, interpreter: Worker) -> None:
    honest = rewritten(recorded.case, "x / (1.0 + tl.exp(-x)) -> x * (1.0 / (1.0 + tl.exp(-x)))")
    verdict = gate_2(recorded, interpreter, honest)
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.evidence["float64"] == "used" and verdict.evidence["covered"] is True
    assert {f["family"] for f in verdict.evidence["families"]} >= correctness.REQUIRED


@pytest.mark.parametrize("change, words", [
    ("1.0 + tl.exp(-x) -> 1.001 + tl.exp(-x)", "out_ptr"),
    ("mask = offsets < n_elements -> mask = offsets < n_elements - 1", "unwritten"),
    ("silu(gate) * up -> silu(gate) * up.to(tl.float16)", "out_ptr"),
    ("out_ptr + offsets, -> out_ptr + offsets + 1,", "outside|unwritten"),
])
def test_a_wrong_rewrite_is_caught(recorded: Recorded, interpreter: Worker, change: str, words: str) -> None:
    verdict = gate_2(recorded, interpreter, rewritten(recorded.case, change))
    assert verdict.status is Status.FAIL
    assert re.search(words, verdict.reason), verdict.reason


def test_gate_1_does_not_compile_what_breaks_the_contract(recorded: Recorded) -> None:
    case = recorded.case
    into_input = rewritten(case, "tl.store(out_ptr + offsets -> tl.store(gate_up_ptr + offsets")
    foreign = rewritten(case, "import triton\n -> import triton\nimport os\n")
    # Neither is compiled: this worker could not.
    store, imports = static.check_kernels([into_input, foreign], case.baseline, recorded.worker,
                                          integers=case.integers, arch=90)
    assert store.status is Status.FAIL and "stores to gate_up_ptr" in store.reason
    assert imports.status is Status.FAIL and "import os" in imports.reason


def test_other_configurations_get_the_hosts_own_grid(recorded: Recorded) -> None:
    place = triton_lever.usable(handle(ast.parse(recorded.work.text), TARGET.entry), recorded.work.cases)
    configs = triton_lever.own(recorded.answer, place, recorded.work.cases, recorded.work.plain)
    assert configs == [TritonConfig((("BLOCK", 1024),), 4, 3)]
    (idea,) = triton_lever.ideas_of(recorded.work, recorded.worker, [TritonConfig.of({"BLOCK": 64}, 2, 3)])
    launches = [c.plan.launches[0] for c in idea.candidates]
    assert [(launch.grid, launch.num_warps, launch.constexprs["BLOCK"]) for launch in launches] == [(("2",), 2, 64)] * 2


def test_an_edit_launches_what_was_verified_and_another_does_not(recorded: Recorded) -> None:
    work, chosen = recorded.work, TritonConfig.of({"BLOCK": 64}, 2, 3)
    place = handle(ast.parse(work.text), TARGET.entry)
    new = edited(work.text, TARGET.entry, [Settings({"BLOCK": 64}, 2, 3)], "reason")
    kept = triton_lever.ideas_of(work, recorded.worker, [chosen])
    right = triton_lever.launches_as_verified(work, recorded.worker, new, [chosen], place, kept)
    assert right.status is Status.PASS, right.reason
    grid = [dataclasses.replace(kept[0], candidates=tuple(
        dataclasses.replace(c, plan=dataclasses.replace(c.plan, launches=(
            dataclasses.replace(c.plan.launches[0], grid=("3",)),))) for c in kept[0].candidates))]
    less = triton_lever.launches_as_verified(work, recorded.worker, new, [chosen], place, grid)
    assert less.status is Status.FAIL and "another grid" in less.reason
    other = triton_lever.launches_as_verified(work, recorded.worker, work.text, [chosen], place)
    assert other.status is Status.FAIL and "BLOCK=1024, num_warps=4" in other.reason
    broken = new.replace(b"_silu(gate) * up", b"_silu(gate) + up")
    wrong = triton_lever.launches_as_verified(work, recorded.worker, broken, [chosen], place)
    assert wrong.status is Status.FAIL and "checked failed: AssertionError" in wrong.reason


def test_rows_that_are_apart_and_addresses_with_a_name(recorded: Recorded, interpreter: Worker) -> None:
    """Strides are kept, and what is stored through a local name is not taken for something that is read."""
    old = recorded.work
    text = (EXAMPLES / "softmax.py").read_text() + "\n\ndef strided():\n    softmax(torch.randn(5, 96)[:, 3:70])\n"
    (old.session.root / "soft.py").write_text(text)
    tree, target = ast.parse(text), TritonTarget("soft", "soft.py", "_softmax_kernel", "strided")
    work = dataclasses.replace(old, target=target, text=text.encode(),
                               plain=plain_kernel(tree, target.entry, imported(tree)))
    work.cases = triton_lever.cases_of(triton_lever.record(work, recorded.worker), work.plain, 90, 132)
    (case,) = work.cases
    assert case.covered.startswith("out_ptr: (5, 67) float32, x_ptr: (5, 67) float32 with strides (96, 1)")
    assert case.reads == ("x_ptr",) and not case.plan.parameters[1].divisible
    mine = Recorded(work, recorded.worker, {})
    assert gate_2(mine, interpreter, rewritten(case, "numerator / tl.sum(numerator, axis=0) -> "
                                               "numerator * (1.0 / tl.sum(numerator, axis=0))")).status is Status.PASS
    dense = gate_2(mine, interpreter, rewritten(case, "x_ptr + row * row_stride -> x_ptr + row * n_cols"))
    assert dense.status is Status.FAIL and "out_ptr" in dense.reason


def test_a_worker_that_says_something_else_is_not_believed(recorded: Recorded) -> None:
    for calls in (None, [None], [{}], [{**recorded.answer["calls"][0], "arguments": {}}],
                  [{**recorded.answer["calls"][0], "grid": ["x"]}]):
        with pytest.raises(Malformed):
            triton_lever.cases_of({"calls": calls}, recorded.work.plain, 90, 132)


@pytest.mark.parametrize("head, words", [
    ("from helpers import silu as _silu\n", "_silu comes from helpers.silu"),
    ("def _silu(x): return x\n", "_silu is not under @triton.jit"),
])
def test_a_kernel_that_cannot_be_taken_is_the_targets_error(tmp_path: Path, head: str, words: str) -> None:
    text = (EXAMPLES / "swiglu.py").read_text()
    start, end = text.index("@triton.jit\ndef _silu"), text.index("# kernelopt")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "ops.py").write_text(text[:start] + head + text[end:])
    result = triton_lever.optimise(session(tmp_path), TARGET)
    assert result.bad_input and words in result.error and not result.trials


@pytest.mark.parametrize("text, words", [
    (b"import triton\n@triton.jit\ndef swiglu_kernel(x):\n    x = " + b"1 + " * 3000 + b"1\n", "deeper than Python"),
    (b"# coding: latin-1\n# \xe9\nimport triton\n@triton.jit\ndef swiglu_kernel(x): pass\n", "not in UTF-8"),
    (b"import triton\n", "no longer in its file"), (b"def (:\n", "invalid syntax"), (b"x = '\x00'\n", "null bytes"),
    (b"import triton\ndef f():\n    @triton.jit\n    def swiglu_kernel(x): pass\n", "no longer in its file"),
])
def test_a_file_that_means_no_good_is_the_targets_error(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "ops.py").write_bytes(text)
    result = triton_lever.optimise(session(tmp_path), TARGET)
    assert result.bad_input and words in result.error and not result.trials


def test_by_hand_on_a_machine_without_a_gpu(tmp_path: Path) -> None:
    """From the command line to the report: what passes is not adopted, since nothing was timed."""
    if missing := BubblewrapJail().missing():
        pytest.skip(missing[0])
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "swiglu.py").write_text((EXAMPLES / "swiglu.py").read_text().replace("(24, 2 * 344", "(4, 2 * 40"))
    out = tmp_path / "out"
    done = CliRunner().invoke(group, ["optimize", f"{tmp_path}/swiglu.py:swiglu_kernel", "--output", str(out),
                                      "--device", "cpu"])
    assert done.exit_code == 0, done.output
    data = json.loads((out / "report.json").read_text())
    (target,) = data["targets"]
    assert target["error"] == "" and not target["faster"] and target["entry"] == "swiglu_kernel"
    assert data["levers"][0]["reason"] == triton_lever.NO_GPU and data["adopted"] == []
    first = {v["gate"]: v for v in data["gates"][0]["verdicts"]}
    assert (first["static"]["status"], first["correctness"]["status"]) == ("pass", "pass")
    assert first["static"]["evidence"]["candidate"][0]["cubin_bytes"] > 0
    assert (first["performance"]["status"], first["performance"]["reason"]) == ("not measured", "no GPU")
    report = (out / "report.md").read_text()
    assert "Triton kernel `swiglu_kernel` in `swiglu.py`" in report and "so your kernel stays as it is" in report
    assert not (out / "kernelopt.patch").exists()
