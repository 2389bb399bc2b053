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
QUICK = ("torch2.11:group_norm_8x64x5x5", "torch2.11:softmax_2x9000", "torch2.13:two_windows",
         "torch2.11:two_step_loss")
"""Tiles of two dimensions, halves of a split moved by row, a window by element, nothing to move."""
SLOW = [n for n in PATHS if n.startswith("torch2.11") and n not in QUICK]



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
        "arguments": run_arguments(site.run, text), "lane": "interpret", "secret": "runs",
        "precision": {"m": 2, "k": 4}, **also})


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
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
    families = ["normal", "cancelling"] if name in QUICK else ["normal"]
    answer = check(interpreter, site, text, candidates[-1], families=families)
    assert [f["passed"] for f in answer["families"]] == [True] * len(families), answer["families"][-1]["reason"]
    assert answer["float64"] == "used" and answer["covered"] and answer["inputs_untouched"]
