"""Gate 1 of a candidate for several kernels: what it takes and writes against what the run does as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.contract.candidate import KernelCandidate, Parameter
from kernelopt_bot.gates import static
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.playbook.fuse_producers import FUSION
from kernelopt_bot.playbook.fusion import RunSite
from tests.playbook.run_sites import run_sites

WRAPPER = Path(__file__).parents[1] / "playbook/data/runs/torch2.13/convolution_group_norm.py.txt"


class NoWorker:
    def call(self, method: str, *arguments: Any, **keywords: Any) -> dict[str, Any]:
        raise AssertionError(f"{method} was called for a broken contract")


@pytest.fixture(scope="module")
def site() -> RunSite:
    """Scale and apply of a group norm in place: p0 and p2 die (mean, squares), p5 is the convolution's output."""
    return next(s for s in run_sites(WRAPPER.read_text()) if len(s.run.calls) == 2 and FUSION.applies(s))


@pytest.fixture(scope="module")
def honest(site: RunSite) -> KernelCandidate:
    return next(iter(FUSION.propose(site)))


def judge(site: RunSite, candidate: KernelCandidate) -> Verdict:
    return static.check_kernel(candidate, site.run, NoWorker(), integers={**site.run.integers, "num_sms": 132}, arch=90)


Change = Callable[[tuple[Parameter, ...]], tuple[Parameter, ...]]


def changed(candidate: KernelCandidate, change: Change, old: str = "", new: str = "") -> KernelCandidate:
    plan = dataclasses.replace(candidate.plan, parameters=change(candidate.plan.parameters))
    return dataclasses.replace(candidate, plan=plan, source=candidate.source.replace(old, new))


def set_written(*names: str) -> Change:
    return lambda ps: tuple(dataclasses.replace(p, written=p.name in names) for p in ps)


def test_what_the_run_is(site: RunSite) -> None:
    roles = {b.name: b.role for b in site.run.buffers}
    assert site.run.written == {"p4"} and roles["t0"] == roles["t1"] == "inside"
    assert roles["p0"] == "dying" and {b.name for b in site.run.slots} == {f"p{i}" for i in range(6)}


def store_of(candidate: KernelCandidate) -> str:
    (line,) = [s for s in candidate.source.splitlines() if "tl.store(p4 + " in s]
    return line


def test_the_live_out_must_be_written(site: RunSite, honest: KernelCandidate) -> None:
    verdict = judge(site, changed(honest, set_written(), store_of(honest), ""))
    assert verdict.status is Status.FAIL and "p4 is written by the run and not by the plan" in verdict.reason


def test_what_dies_may_not_be_written(site: RunSite, honest: KernelCandidate) -> None:
    line = store_of(honest)
    more = f"{line.replace('tl.store(p4', 'tl.store(p0')}\n{line}"
    verdict = judge(site, changed(honest, set_written("p0", "p4"), line, more))
    assert verdict.status is Status.FAIL and "p0 is not written by the run, or nothing reads it" in verdict.reason


def test_an_input_may_not_be_written_behind_the_plans_back(site: RunSite, honest: KernelCandidate) -> None:
    line = store_of(honest)
    more = f"{line.replace('tl.store(p4', 'tl.store(p1')}\n{line}"
    verdict = judge(site, changed(honest, lambda ps: ps, line, more))
    assert verdict.status is Status.FAIL and "stores to p1, which the replaced run does not write" in verdict.reason


@pytest.mark.parametrize(("name", "kind"), [("t0", "*fp32"), ("p9", "*fp32"), ("p0", "*fp16")])
def test_only_the_runs_slots_can_be_taken(site: RunSite, honest: KernelCandidate, name: str, kind: str) -> None:
    def add(ps: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
        return (*(p for p in ps if p.name != name), Parameter(name, kind))

    verdict = judge(site, changed(honest, add))
    assert verdict.status is Status.FAIL and f"{name}: {kind} is no buffer of the run" in verdict.reason
