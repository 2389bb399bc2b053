"""What the bot costs beside the search, for a pull request with 20 targets of which 2 changed."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.cli.phases import read_order
from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, write_artifact
from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.report.facts import adopted
from kernelopt_bot.search.result import RunResult, TargetResult
from kernelopt_bot.targets.checkout import checkout
from kernelopt_bot.targets.diff import affected, config_for
from kernelopt_bot.targets.git import open_repository
from tests.cli.conftest import CONFIG, Case, case  # noqa: F401  (a fixture)
from tests.publish.test_bundle import WRAPPER, made  # noqa: F401  (a fixture)
from tests.targets.conftest import MODEL

TARGETS, CHANGED = 20, (13, 7)
MOST_REQUESTS, MOST_SECONDS = 40, 15.0


def also_faster(r: TargetResult, root: Path, path: str, name: str) -> TargetResult:
    """`r` for the target `name`, with an artifact of its own below `root`."""
    graph = parse_graph({"index": 0, "source": WRAPPER.read_text(), "inputs": [], "outputs": [], "calls": [],
                         "is_inference": True, "is_backward": False, "saved_inputs": None})
    program = Program(name, "cuda", (graph,), "2.11.0", "3.6.0", "NVIDIA H200", {})
    pieces = [t.candidate for t in adopted(r)]
    kernels = [AdoptedKernel(p, {"step_speedup": 1.4}) for p in pieces if isinstance(p, KernelCandidate)]
    artifact = f"kernelopt_kernels/{name}"
    write_artifact(
        root / artifact, class_name=r.target.entry, program=program, kernels=kernels,
        recipe=Recipe.of({"triton.cudagraphs": True}), evidence={"speedup": 1.2, "low": 1.1, "high": 1.3},
        environment={"torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200", "capability": [9, 0]})
    return replace(r, target=replace(r.target, name=name, path=path), artifact=artifact)


@pytest.fixture
def twenty(case: Case) -> Iterator[Case]:  # noqa: F811
    files = {f"models/m{i}.py": MODEL for i in range(TARGETS)}
    files |= {"models/block.py": "x = 1\n", "CODEOWNERS": "/kernelopt_kernels/ @sam\n",
              ".kernelopt.yml": f"{CONFIG}publish: {{ labels: [performance] }}\n"}
    case.repo.permissions["sam"] = "write"
    case.repo.git("update-ref", "refs/heads/faster-models", case.repo.commit("main", files))
    case.repo.commit("faster-models", {f"models/m{i}.py": f"{MODEL}FASTER = True\n" for i in CHANGED})
    yield case


def test_a_pull_request_costs_little(twenty: Case, made: tuple[RunResult, Path], tmp_path: Path) -> None:  # noqa: F811
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--branch", "faster-models", str(twenty.repo.path), str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "fetch", "-q", "origin", "main"], check=True)
    run, _ = made
    faster = tuple(also_faster(run.results[0], tmp_path / "run", f"models/m{i}.py", f"models_m{i}") for i in CHANGED)
    twenty.hub.log.clear()

    start = time.monotonic()
    assert twenty.run("authorise") == 0 and twenty.outputs["execute"] == "true"
    order = read_order(twenty.job)
    repository = open_repository(clone)
    found = affected(repository, order.job.base_sha, order.job.head_sha,
                     config_for(repository, order.policy_sha, order.job.head_sha))
    checkout(repository, order.job.head_sha, tmp_path / "checkout")
    twenty.execute(replace(run, results=faster), tmp_path / "run")
    assert twenty.publish() == 0
    seconds = time.monotonic() - start

    assert [t.name for t in found.targets] == [r.target.name for r in faster]
    assert twenty.outputs["operation"] == "created" and twenty.outputs["adopted"] == "4"
    assert twenty.check["conclusion"] == "success" and twenty.check["output"]["annotations_count"] == 2
    [ours] = [n for n in twenty.repo.pulls if n != twenty.number]
    assert (twenty.repo.requested[ours], twenty.repo.issue_labels[ours]) == (["sam"], ["performance"])
    assert len(twenty.repo.comments) == 2, "the asking one, and ours"
    assert len(twenty.hub.log) <= MOST_REQUESTS, Counter(name for name, _ in twenty.hub.log)
    assert seconds <= MOST_SECONDS, f"{seconds:.1f} s with {len(twenty.hub.log)} requests"
    print(f"{seconds:.1f} s, {len(twenty.hub.log)} requests: {Counter(name for name, _ in twenty.hub.log)}")
