"""Gate 2 of runs of several kernels on the interpreter, with kernels that Inductor emitted for models of ours."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.fuse_producers import FUSION, fuse
from kernelopt_bot.playbook.fusion import RunSite
from kernelopt_bot.playbook.technique import BaselineConfig
from tests.playbook.run_sites import run_arguments, run_sites
from tests.sandbox.worker.conftest import KernelWorker

DATA = Path(__file__).parents[2] / "playbook" / "data" / "runs"
PATHS = {f"{p.parent.name}:{p.name.removesuffix('.py.txt')}": p for p in sorted(DATA.glob("*/*.py.txt"))}
QUICK = ["normal", "cancelling"]


def longest(text: str) -> RunSite | None:
    """The run of most calls whose kernels can be moved, the first of them among these."""
    found = [s for s in run_sites(text) if FUSION.applies(s) and 0 not in kept(s)]
    return max(found, key=lambda s: len(s.run.calls)) if found else None


def kept(site: RunSite) -> set[int]:
    return {f.node.position for f in fuse(site)}


def configured(site: RunSite, compiler: KernelWorker) -> RunSite:
    configs = tuple(
        tuple(BaselineConfig.from_json(c) for c in compiler.call(
            "compile_baseline", {"source": k.source, "target": {"arch": 90}})["configs"] if "facts" in c)
        for k in site.run.kernels)
    return dataclasses.replace(site, configs=configs)


def check(worker: KernelWorker, site: RunSite, text: str, candidate: KernelCandidate, **also: Any) -> dict[str, Any]:
    return worker.call("check_step", {
        "baseline": site.run.baseline(), "candidate": {"source": candidate.source, "plan": candidate.plan.to_json()},
        "arguments": run_arguments(site.run, text), "lane": "interpret", "secret": "runs", "families": QUICK,
        "precision": {"m": 2, "k": 4}, **also})


@pytest.mark.parametrize("name", PATHS)
def test_moved_producers_pass(interpreter: KernelWorker, compiler: KernelWorker, name: str) -> None:
    text = PATHS[name].read_text()
    site = longest(text)
    if name.endswith("two_step_loss"):
        assert site is None
        return
    assert site is not None
    site = configured(site, compiler)
    candidates = list(FUSION.propose(site))
    assert candidates
    compiled = compiler.call("compile_candidate", {
        "source": candidates[0].source, "plan": candidates[0].plan.to_json(), "integers": dict(site.run.integers),
        "target": {"arch": 90}, "baseline": site.run.kernels[0].source, "slots": site.run.slots_json()})
    assert all(f["cubin_bytes"] > 0 and f["spills"] == 0 for f in compiled["launches"])
    answer = check(interpreter, site, text, candidates[-1])
    assert [f["passed"] for f in answer["families"]] == [True] * len(QUICK), answer["families"][-1]["reason"]
    assert answer["float64"] == "used" and answer["covered"] and answer["inputs_untouched"]
