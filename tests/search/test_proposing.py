"""Gate 1 for the ideas of real techniques about real captured kernels, side by side in a real worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.client import Worker, WorkerError
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.search import proposing
from kernelopt_bot.search.proposing import Compiler, Proposals, ahead, ideas
from kernelopt_bot.search.sites import Place
from tests.playbook import sites


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Worker("kernel", python=sys.executable, jail=ProcessJail(),
                scratch=tmp_path_factory.mktemp("compile")) as worker:
        yield Compiler(worker, 90)


def place(name: str, number: int = 0) -> Place:
    return Place(sites.site(sites.calls(name)[number]), {}, 1)


def broken() -> Place:
    call = dict(sites.calls("softmax_3x2051")[0])
    call["source"] = call["source"].replace("tl.load(", "tl.lode(")
    return Place(sites.site(call), {}, 1)


@pytest.mark.parametrize("cores", [1, 16])
def test_every_place_gets_the_verdicts_of_its_own_ideas(
    compiler: Compiler, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    places = [place("softmax_3x2051"), broken(), place("softmax_3x2051")]
    first, failed, last = ahead(compiler, places, each=1, most=2)
    assert "lode" in failed.failure and failed.judged == ()
    for found in (first, last):
        assert not found.failure and found.place.site.configs, "the baseline's configurations are known"
        assert [c for c, _ in found.judged] == ideas(found.place.site, each=1, most=2)
        assert {v.gate for _, v in found.judged} == {"static"}
        passed = [v for _, v in found.judged if v.status is Status.PASS]
        assert passed and all(v.evidence["candidate"][0]["registers"] > 0 for v in passed)


def test_who_stops_early_leaves_nothing_running(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    found = ahead(compiler, [place("softmax_3x2051")] * 6, each=1, most=1)
    assert isinstance(next(found), Proposals)
    found.close()
    assert compiler.worker.call("hello", {}, timeout=30)["torch"], "no other thread is in the middle of a call"


def test_a_lost_worker_is_a_failure_of_the_place_and_comes_back(compiler: Compiler) -> None:
    compiler.worker.close()
    (found,) = ahead(compiler, [place("softmax_3x2051")], each=1, most=1)
    assert not found.failure and found.judged
    baseline: WorkerError = proposing.static.WorkerFailed("compile_failed", "it crashed")
    assert proposing.proposals(compiler, place("softmax_3x2051"), baseline, each=1, most=1).failure


def test_a_worker_with_a_gpu_compiles_in_a_process_that_never_sees_it(tmp_path: Path) -> None:
    site = place("softmax_3x2051").site
    worker = Worker("kernel", python=sys.executable, jail=ProcessJail(), scratch=tmp_path,
                    environment={"CUDA_VISIBLE_DEVICES": "0"})
    with worker:
        answer = Compiler(worker, 90).baselines([place("softmax_3x2051")])[site.kernel.source]
    assert isinstance(answer, dict) and answer["configs"][0]["facts"]["registers"] > 0
