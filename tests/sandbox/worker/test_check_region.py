"""Gates 1 and 2 of regions (a vendor call and the kernel after it) on kernels that Inductor emitted for models of ours:
the interpreter against the vendor's own function and float64, and sm_90 cubins."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.gates import static
from kernelopt_bot.gates.static import Group
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.playbook.depthwise_region import REGION as DEPTHWISE
from kernelopt_bot.playbook.fusion import RunSite
from kernelopt_bot.playbook.product_region import REGION as PRODUCT
from tests.playbook.run_sites import region_sites, run_arguments
from tests.sandbox.worker.conftest import KernelWorker

VERSION = "torch" + ".".join(torch.__version__.split(".")[:2])
DATA = Path(__file__).parents[2] / "playbook" / "data" / "regions" / VERSION
NAMES = sorted(p.name.removesuffix(".py.txt") for p in DATA.glob("*.py.txt"))
QUICK = ("depthwise_alone", "product_bfloat16", "product_softmax", "product_twice")
EVERY = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
COMPILED = ("depthwise_alone", "product_half", "product_softmax")
"""One of each kind: what the others would add to gate 1 is time."""


def text(name: str) -> str:
    return (DATA / f"{name}.py.txt").read_text()


def region(name: str) -> tuple[RunSite, list[KernelCandidate]]:
    site = region_sites(text(name))[-1]
    technique = DEPTHWISE if name.startswith("depthwise") else PRODUCT
    assert technique.applies(site) is not None or name == "product_alone"
    return site, list(technique.propose(site))


def check(worker: KernelWorker, site: RunSite, wrapper: str, candidate: KernelCandidate, **also: Any) -> dict[str, Any]:
    return worker.call("check_step", {
        "baseline": site.run.baseline(), "candidate": {"source": candidate.source, "plan": candidate.plan.to_json()},
        "arguments": run_arguments(site.run, wrapper), "lane": "interpret", "secret": "regions",
        "families": ["normal", "cancelling"], "precision": {"m": 2, "k": 4, "m_half": 3}, **also})


def test_there_are_regions() -> None:
    assert len(NAMES) == 11


@pytest.mark.parametrize("name", EVERY)
def test_first_candidate_passes_gate_2(interpreter: KernelWorker, name: str) -> None:
    site, candidates = region(name)
    answer = check(interpreter, site, text(name), candidates[0])
    assert [f["passed"] for f in answer["families"]] == [True, True], answer["families"][-1]["reason"]
    assert answer["float64"] == "used" and answer["covered"] and answer["inputs_untouched"]
    assert answer["orders"] is not None and not answer["order_dependent"]


class _Caller:
    """The worker of this folder as gates call one."""

    def __init__(self, worker: KernelWorker) -> None:
        self.worker = worker

    def call(self, method: str, params: Mapping[str, Any], *, timeout: float) -> dict[str, Any]:
        return self.worker.call(method, dict(params))


@pytest.fixture(scope="module")
def compiled(compiler: KernelWorker) -> dict[str, list[Verdict]]:
    """Gate 1 of a region's first candidate, compiled for sm_90."""
    regions = {name: region(name) for name in COMPILED}
    groups = [Group(c[:1], s.run, {**s.run.integers, "num_sms": 132})
              for s, c in regions.values()]
    return dict(zip(COMPILED, static.check_groups(groups, _Caller(compiler), arch=90), strict=True))


@pytest.mark.parametrize("name", COMPILED)
def test_candidates_pass_gate_1(compiled: dict[str, list[Verdict]], name: str) -> None:
    assert {(v.status, v.reason) for v in compiled[name]} == {(Status.PASS, "")}
    facts = [f for v in compiled[name] for f in v.evidence["candidate"]]
    assert all(f["spills"] == 0 for f in facts)
    if name.startswith(("product", "pointwise")):
        assert all(f["instructions"].get("HGMMA") or f["instructions"].get("HMMA") for f in facts)


def test_tf32_alone_fails_gate_2(interpreter: KernelWorker, compiler: KernelWorker) -> None:
    """The interpreter multiplies exactly, so that a weaker product is shown by rounding the operands as TF32 does."""
    site, candidates = region("product_relu")
    weak = candidates[0].source
    for operand in ("left_tile", "right_tile"):
        weak = weak.replace(f"{operand},", f"{operand}.to(tl.bfloat16).to(tl.float32),", 1)
    assert weak != candidates[0].source
    answer = check(interpreter, site, text("product_relu"), dataclasses.replace(candidates[0], source=weak))
    assert not answer["families"][0]["passed"] and "rmse" in answer["families"][0]["reason"].lower()


def test_a_result_left_out_fails_gate_1(compiler: KernelWorker) -> None:
    """The product itself is read after the region, so that a candidate must write it."""
    site, candidates = region("product_twice")
    out = site.run.vendor.out if site.run.vendor else ""
    plan = candidates[0].plan
    silent = tuple(dataclasses.replace(p, written=p.written and p.name != out) for p in plan.parameters)
    candidate = dataclasses.replace(candidates[0], plan=dataclasses.replace(plan, parameters=silent))
    (verdict,) = static.check_kernels([candidate], site.run, _Caller(compiler), arch=90, integers={})
    assert verdict.status is Status.FAIL
