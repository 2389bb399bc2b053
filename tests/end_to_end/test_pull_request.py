"""The main job, from GitHub's payload to the pull request on GitHub (its validated stand-in)."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.end_to_end.conftest import ROOT, Case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]
BRANCH = "kernelopt-pr-"


@pytest.mark.serial
def test_a_changed_model_becomes_a_pull_request(case: Case) -> None:
    done = case.run()
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((case.output / "report.json").read_text())
    jsonschema.validate(report, json.loads((ROOT / "docs/report.schema.json").read_text()))
    assert [t["name"] for t in report["targets"]] == ["net_stack"], "the untouched model is not a target"
    assert report["noise"], "every report has an A/A control"
    pulls = list(case.repo.pulls.values())
    if not report["adopted"]:
        # A machine too noisy for any gain: said with its A/A figures, and nothing is published.
        assert not pulls and "not published" in done.stdout and "A/A" in (case.output / "report.md").read_text()
        pytest.skip(f"this machine is too noisy for an adoption: A/A {report['noise']}")
    adopted = report["adopted"][0]
    assert adopted["lever"] == "launch"
    assert {v["gate"]: v["status"] for v in adopted["verdicts"]} == dict.fromkeys(
        ("static", "correctness", "model", "performance"), "pass")
    [pull] = pulls
    number = case.payload()["number"]
    assert pull["base"]["ref"] == "faster-models"
    assert pull["head"]["ref"] == f"{BRANCH}{number}"
    assert "net_stack" in pull["body"] and "KERNELOPT_DISABLE=1" in pull["body"]
    branch = f"{BRANCH}{number}"
    assert case.repo.git("rev-parse", f"{branch}^") == case.head
    assert "KernelOPT-Key:" in case.repo.git("log", "-1", "--format=%B", branch)
    changed = case.repo.git("diff", "--name-only", case.head, branch).splitlines()
    assert changed and all(path.startswith("kernelopt_kernels/net_stack/") for path in changed)
    outputs = dict(line.split("=", 1) for line in (case.output.parent / "outputs").read_text().splitlines())
    assert outputs["operation"] == "created" and outputs["pull-request-number"] == str(pull["number"])
    assert (case.output.parent / "summary.md").read_text().strip()
    _the_branch_works(case, branch)


def _the_branch_works(case: Case, branch: str) -> None:
    """What was published is importable from a checkout of the branch and gives the model's own answer."""
    import subprocess

    import torch

    clone = case.output.parent / "published"
    subprocess.run(["git", "clone", "-q", "--branch", branch, str(case.repo.path), str(clone)], check=True)

    def load(name: str, path: Path) -> object:
        spec = importlib.util.spec_from_file_location(
            name, path, submodule_search_locations=[str(path.parent)] if path.name == "__init__.py" else None)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    stack: object = load("published_stack", clone / "net/stack.py")
    artifact: object = load("published_artifact", clone / "kernelopt_kernels/net_stack/__init__.py")
    model = stack.Model(*stack.get_init_inputs()).eval()  # type: ignore[attr-defined]
    inputs = stack.get_inputs()  # type: ignore[attr-defined]
    with torch.no_grad():
        expected = model(*inputs)
        got = artifact.optimize(model)(*inputs)  # type: ignore[attr-defined]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert artifact.status(model)["covered"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", ["budget: { wall_s: 1 }\n"], indirect=True)
def test_without_permission_it_reports_and_says_so(case: Case) -> None:
    case.repo.push = False
    case.repo.push_shown = False
    (case.clone / ".kernelopt.yml").unlink()
    done = case.run("--publish", "report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not published" in done.stdout
    assert not case.repo.pulls
    assert case.repo.git("branch", "--list", f"{BRANCH}*") == ""
    for text in (done.stdout, (case.output / "report.md").read_text()):
        # Said first, and not only in the table of levers.
        head = " ".join(re.sub(r"[│>*`\\]", "", text.split("Gain per lever")[0]).split())
        assert "ended the search early: the wall time of 1 s is spent, before any candidate was tried" in head
        assert "Not searched: launch" in head
