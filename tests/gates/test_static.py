import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate
from kernelopt_bot.gates import static
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import Worker
from tests.gates import kernels


class Unused:
    """A worker that must not be asked."""

    def call(self, method: str, params: Mapping[str, Any], *, timeout: float,
             progress: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        raise AssertionError(f"{method} was called")


def changed(candidate: KernelCandidate, old: str, new: str) -> KernelCandidate:
    assert old in candidate.source
    return dataclasses.replace(candidate, source=candidate.source.replace(old, new))


def check(candidate: KernelCandidate, worker: Worker | Unused, **kwargs: Any) -> Verdict:
    return static.check_kernel(candidate, kernels.KERNEL, worker, integers=kernels.INTEGERS, arch=90, **kwargs)


def test_honest_candidate_passes_with_facts(candidate: KernelCandidate, compiler: Worker) -> None:
    verdict = check(candidate, compiler)
    assert (verdict.status, verdict.reason, verdict.evidence["flags"]) == (Status.PASS, "", [])
    (facts,) = verdict.evidence["candidate"]
    assert facts["registers"] > 0
    assert facts["cubin_bytes"] > 0
    assert verdict.evidence["baseline"]
    assert verdict.seconds > 0


@pytest.mark.parametrize(("old", "new", "rule"), [
    ("import triton\n", "import triton\nimport os\n", "import"),
    ("tl.store(out_ptr0", "tl.store(in_ptr0", "store"),
    ("total, rows < xnumel", "in_ptr0, rows < xnumel", "flow"),
    ("tl.store(out_ptr0 + rows, total", "tl.atomic_add(out_ptr0 + rows, total", "atomics"),
])
def test_a_broken_contract_is_not_compiled(candidate: KernelCandidate, old: str, new: str, rule: str) -> None:
    verdict = check(changed(candidate, old, new), Unused())
    assert verdict.status is Status.FAIL
    assert rule in {v["rule"] for v in verdict.evidence["violations"]}


def test_a_plan_must_bind_the_kernels_own_buffers(candidate: KernelCandidate) -> None:
    first, second, *rest = candidate.plan.parameters
    for parameters in ((dataclasses.replace(first, type="*bf16"), second, *rest),
                       (dataclasses.replace(first, written=True), second, *rest),
                       (first, dataclasses.replace(second, written=False), *rest)):
        plan = dataclasses.replace(candidate.plan, parameters=parameters)
        assert check(dataclasses.replace(candidate, plan=plan), Unused()).status is Status.FAIL


def test_float_atomics_by_permission(candidate: KernelCandidate, compiler: Worker) -> None:
    atomic = changed(candidate, "tl.store(out_ptr0 + rows, total", "tl.atomic_add(out_ptr0 + rows, total")
    first, second, *rest = atomic.plan.parameters
    plan = dataclasses.replace(atomic.plan, parameters=(first, dataclasses.replace(second, read=True), *rest))
    assert check(dataclasses.replace(atomic, plan=plan), compiler, allow_float_atomics=True).status is Status.PASS


def test_the_compilers_refusal_is_a_failure(candidate: KernelCandidate, compiler: Worker) -> None:
    verdict = check(changed(candidate, "tl.arange(0, 64)", "tl.arange(0, 63)"), compiler)
    assert verdict.status is Status.FAIL
    assert "compile failed" in verdict.reason
    assert "power of 2" in verdict.reason


def test_a_baseline_that_does_not_compile_is_not_the_candidates_fault(
    candidate: KernelCandidate, compiler: Worker
) -> None:
    broken = dataclasses.replace(
        kernels.KERNEL, source=kernels.BASELINE.replace("tl.arange(0, R0_BLOCK)", "tl.arange(0, 63)"))
    verdict = static.check_kernel(candidate, broken, compiler, integers=kernels.INTEGERS, arch=90)
    assert verdict.status is Status.NOT_MEASURED


def test_weaker_arithmetic_is_flagged(candidate: KernelCandidate, compiler: Worker) -> None:
    verdict = check(changed(candidate, "total = tl.sum(values, 1)",
                            "total = tl.sum(libdevice.fast_logf(libdevice.fast_expf(values)), 1)"), compiler)
    flags = " ".join(verdict.evidence["flags"])
    assert verdict.status is Status.PASS
    assert "libdevice.fast_expf" in flags
    assert "MUFU" in flags


def test_tf32_is_flagged(candidate: KernelCandidate, compiler: Worker) -> None:
    source = candidate.source.replace("total = tl.sum(values, 1)[:, None]", (
        "ones = tl.full([64, 16], 1.0, tl.float32)\n"
        "    total = tl.max(tl.dot(values, ones, input_precision='tf32'), 1)[:, None]"))
    launch = dataclasses.replace(candidate.plan.launches[0], constexprs={"XBLOCK": 16})
    tf32 = dataclasses.replace(candidate, source=source,
                               plan=dataclasses.replace(candidate.plan, launches=(launch,)))
    verdict = check(tf32, compiler)
    assert verdict.status is Status.PASS
    assert any(flag.startswith("TF32") for flag in verdict.evidence["flags"])


def test_shared_memory_over_the_limit(candidate: KernelCandidate) -> None:
    facts = {"registers": 32, "shared": 227 * 1024, "spills": 0, "instructions": {}}
    over = {**facts, "shared": 227 * 1024 + 1}
    assert static._facts(candidate, (kernels.KERNEL,), [facts], [facts], 90).status is Status.PASS
    refused = static._facts(candidate, (kernels.KERNEL,), [facts], [over], 90)
    assert refused.status is Status.FAIL
    assert "232448" in refused.reason


def test_spills_are_flagged(candidate: KernelCandidate) -> None:
    facts = {"registers": 255, "shared": 0, "spills": 0, "instructions": {}}
    verdict = static._facts(candidate, (kernels.KERNEL,), [facts], [{**facts, "spills": 12}], 90)
    assert verdict.evidence["flags"] == ["12 spilled words a thread, the baseline 0"]


def test_more_registers_than_a_block_has(candidate: KernelCandidate) -> None:
    plan = dataclasses.replace(
        candidate.plan, launches=(dataclasses.replace(candidate.plan.launches[0], num_warps=32),))
    facts = {"registers": 128, "shared": 0, "spills": 0, "instructions": {}}
    refused = static._facts(dataclasses.replace(candidate, plan=plan), (kernels.KERNEL,), [facts], [facts], 90)
    assert refused.status is Status.FAIL
    assert "registers" in refused.reason


def test_options() -> None:
    good = OptionsCandidate("o", "dispatch", {"layout_optimization": False}, "layout")
    assert static.check_options(good, "cuda").evidence["why"]["layout_optimization"]
    assert static.check_options(good, "cuda").status is Status.PASS
    bad = OptionsCandidate("o", "dispatch", {"freezing": True}, "freeze")
    assert static.check_options(bad, "cuda").status is Status.FAIL
