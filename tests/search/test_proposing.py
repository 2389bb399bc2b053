"""Gate 1 for the ideas of real techniques about real captured kernels, side by side in a real worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.search.proposing import Compiler, in_batches
from kernelopt_bot.search.sites import Place
from kernelopt_bot.search.spots import FOR_EACH_SPOT, Spot, of_place
from tests.playbook import sites

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Worker("kernel", python=sys.executable, jail=ProcessJail(),
                scratch=tmp_path_factory.mktemp("compile")) as worker:
        yield Compiler(worker, 90)


def spot(name: str = "rowsum_2x90x33", *, spoilt: bool = False) -> Spot:
    call = dict(sites.calls(name)[0])
    site = sites.site(call)
    if spoilt:
        call["source"] = call["source"].replace("tl.load(", "tl.lode(")
        site = sites.site(call)
    return of_place(Place(site, {}, 1))


@pytest.mark.parametrize("cores", [pytest.param(1, marks=pytest.mark.exhaustive), 16])
def test_every_spot_gets_the_verdicts_of_its_own_ideas(
    compiler: Compiler, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    good, bad = spot(), spot(spoilt=True)
    first, failed = in_batches(compiler, [good, bad])
    assert first.spot is good and failed.spot is bad
    assert "lode" in failed.failure and failed.judged == ()
    assert not first.failure and 0 < len(first.judged) <= FOR_EACH_SPOT
    assert {v.gate for _, v in first.judged} == {"static"}
    passed = [v for _, v in first.judged if v.status is Status.PASS]
    assert passed and all(v.evidence["candidate"][0]["registers"] > 0 for v in passed)


def test_a_lost_worker_comes_back(compiler: Compiler) -> None:
    compiler.worker.close()
    (answer,) = compiler.baselines([spot().kernels[0].source]).values()
    assert isinstance(answer, dict) and answer["configs"]


def test_a_worker_with_a_gpu_compiles_in_a_process_that_never_sees_it(tmp_path: Path) -> None:
    worker = Worker("kernel", python=sys.executable, jail=ProcessJail(), scratch=tmp_path,
                    environment={"CUDA_VISIBLE_DEVICES": "0", "KERNELOPT_COMPILES": "1"})
    with worker:
        (answer,) = Compiler(worker, 90).baselines([spot().kernels[0].source]).values()
    assert isinstance(answer, dict) and answer["configs"][0]["facts"]["registers"] > 0
