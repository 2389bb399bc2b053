"""Other orders of a candidate's programs: the split that a GPU runs, interpreted, and compiled for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.gates import correctness
from kernelopt_bot.gates.corpus_case import Case, load
from kernelopt_bot.sandbox.worker.launch_order import halves
from tests.sandbox.worker.conftest import KernelWorker

ROOT = Path(__file__).parents[3]
CASES = {c.name: c for c in load(ROOT / "tests" / "adversarial")}
# Under the interpreter the halves run as they do on a GPU: each launch twice, with the buffer that says which half.
SCRIPT = """
import json, sys, torch
from pathlib import Path
from kernelopt_bot.gates import correctness
from kernelopt_bot.gates.corpus_case import load
from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.sandbox.worker.launch_order import _Halves
from kernelopt_bot.sandbox.worker.launchers import Baseline

def each_half(case):
    baseline = Baseline(case.baseline.kernel.source, sys.argv[1], "interpret")
    arguments, integers = case.baseline.step.arguments, correctness.integers(case.baseline.step)
    split = _Halves(case.source, Plan.from_json(case.plan), baseline, integers, torch.device("cpu"))
    generator, inputs = torch.Generator().manual_seed(0), {}
    for a in arguments:
        if a.tensor is not None and a.buffer not in inputs:
            inputs[a.buffer] = torch.randn(a.tensor.shape, generator=generator)

    def after(runner):
        memory = {b: t.clone() for b, t in inputs.items()}
        runner({a.name: memory[a.buffer] if a.tensor is not None else a.value for a in arguments})
        return memory

    expected = after(baseline)
    for split.bit in range(4):
        for split.first in (0, 1):
            memory = after(split)
            yield all(torch.allclose(memory[b], expected[b]) for b in memory)

print(json.dumps({c.name: list(each_half(c)) for c in load(Path("tests/adversarial")) if c.name in sys.argv[2:]}))
"""


RACES = {
    "honest_in_place": [True] * 8,
    "honest_two_launches_with_scratch": [True] * 8,
    # Neighbours overlap, so that whichever half comes second multiplies again.
    "in_place_twice": [False] * 8,
    # Right from the first program to the last; four programs have two bits, and a half may be all of them.
    "race_between_programs": [False, False, True, False, True, True, True, True],
}
"""Case -> whether its result is the baseline's, for bits 0 to 3, those that have it clear first and those that have it
set first."""


@pytest.mark.slow
def test_halves_see_races(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path), *RACES], cwd=ROOT, check=True, text=True,
                          capture_output=True, env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)})
    assert json.loads(done.stdout) == RACES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["honest_sum_split", "honest_product_dot_tf32x3"])
def test_halves_compile_for_a_gpu(compiler: KernelWorker, name: str) -> None:
    case = CASES[name]
    source, plan, turn = halves(case.source, Plan.from_json(case.plan))
    assert turn not in case.source
    answer = compiler.call("compile_candidate", {
        "source": source, "plan": plan.to_json(), "target": {"arch": 90}, "baseline": case.baseline.kernel.source,
        "integers": {**correctness.integers(case.baseline.step), "num_sms": 132}})
    assert len(answer["launches"]) == len(case.plan["launches"])


def test_halves_leave_the_candidate_s_own_names_alone() -> None:
    case: Case = CASES["honest_pointwise_own_function"]
    hidden = case.source.replace("def candidate(", "def turn(turns, ").replace("tl.program_id(0)", "turns")
    plan = Plan.from_json({**case.plan, "launches": [{**launch, "function": "turn", "arguments": [
        "xnumel", *launch["arguments"]]} for launch in case.plan["launches"]]})
    source, split, turn = halves(hidden, plan)
    assert turn not in hidden and f"def {turn}_turn({turn}, turns" in source
    assert [(launch.function, launch.arguments[:2]) for launch in split.launches] == [
        (f"{turn}_turn", (turn, "xnumel"))]
    assert "def turn(turns" in source, "another function may call it"
