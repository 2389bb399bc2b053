"""The phases with an edit of a Triton kernel, against the GitHub stand-in; and `run` over a real event."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelopt_bot.cli import run as command
from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.patch import write_patch
from kernelopt_bot.config import Config
from kernelopt_bot.events.job import Job
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import Swept
from kernelopt_bot.targets.git import open_repository
from tests.cli.conftest import CONFIG, Case
from tests.publish.kernels import OPS, PATH, edit, result, run_of
from tests.targets.conftest import Scratch

EXAMPLE = Path(__file__).parents[2] / "examples/triton/swiglu.py"


def begun(case: Case, run: RunResult | None = None) -> None:
    """Up to the bundle."""
    case.repo.commit("faster-models", {PATH: OPS})
    assert case.run("authorise") == 0
    case.execute(run or run_of(result()), case.folder)


def test_from_the_event_to_a_pull_request_that_edits_the_file(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    begun(case)
    assert case.publish() == 0, capsys.readouterr()
    [ours] = case.ours()
    branch = f"kernelopt-pr-{case.number}"
    assert (case.outputs["operation"], ours["base"]["ref"], ours["head"]["ref"]) == ("created", "faster-models", branch)
    assert case.repo.git("diff", "--name-status", "faster-models", branch).split() == ["M", PATH]
    assert case.repo.git("show", f"{branch}:{PATH}") + "\n" == edit().decode()
    assert "is edited in place" in ours["body"] and "```diff" in ours["body"]
    assert case.check["conclusion"] == "success"
    assert f"{PATH} is edited in place" in case.summary.replace("`", "")
    tip = case.repo.sha(branch)
    assert case.publish() == 0 and case.outputs["operation"] == "unchanged"
    assert (case.repo.sha(branch), len(case.ours())) == (tip, 1), "a phase that runs again changes nothing"


@pytest.mark.parametrize("new", [edit() + b"import os\n", OPS.encode(), b"\xff"])
def test_what_this_release_would_not_have_written_is_refused(case: Case, new: bytes,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    begun(case, run_of(result(new=new)))
    assert case.publish() == 2
    assert case.check["conclusion"] == "failure" and not case.ours()
    assert "the edit of a Triton kernel is refused" in capsys.readouterr().err


def test_a_kernel_without_a_marker_at_the_commit_is_refused(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    begun(case)
    bare = OPS.replace("# kernelopt: inputs=make_inputs\n", "")
    case.repo.commit("faster-models", {PATH: bare})
    assert case.run("authorise") == 0
    case.execute(run_of(result(new=edit(text=bare))), case.folder)
    assert case.publish() == 2 and "no marker names it" in capsys.readouterr().err
    # Unless that commit's list has it.
    listed = f"{CONFIG}kernels: [{{path: {PATH}, kernel: norm, inputs: make_inputs}}]\n"
    case.repo.commit("faster-models", {".kernelopt.yml": listed})
    assert case.run("authorise") == 0
    case.execute(run_of(result(new=edit(text=bare))), case.folder)
    assert case.publish() == 0 and len(case.ours()) == 1


def test_a_file_that_changed_on_the_branch_since_is_left_alone_and_said(case: Case) -> None:
    case.repo.commit("main", {PATH: OPS})
    case.sweep()
    case.execute(run_of(result()), case.folder)
    case.repo.commit("main", {PATH: OPS + "# newer\n"})
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and not case.ours()
    assert f"stale: {PATH} has changed on the branch since" in case.summary


def test_another_run_does_not_take_the_place_of_an_edit_that_it_did_not_look_at(
        case: Case, made: tuple[RunResult, Path], capsys: pytest.CaptureFixture[str]) -> None:
    case.repo.commit("main", {PATH: OPS})
    case.sweep()
    case.execute(run_of(result()), case.folder)
    assert case.publish() == 0 and len(case.ours()) == 1
    tip = case.repo.sha("kernelopt-sweep-main")
    case.execute(*made)
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and case.repo.sha("kernelopt-sweep-main") == tip
    assert "offers kernels for a Triton kernel, which this run did not look at" in capsys.readouterr().out


@pytest.mark.parametrize(("newer", "state"), [("norm", "closed"), ("scale", "open")])
def test_an_older_pull_request_is_superseded_by_the_same_kernels_alone(case: Case, newer: str, state: str) -> None:
    begun(case)
    assert case.publish() == 0
    [older] = case.ours()
    older["base"] |= {"ref": "main"}
    case.repo.commit("main", {PATH: OPS})
    case.sweep()
    case.execute(run_of(result(newer)), case.folder)
    assert case.publish() == 0 and case.outputs["operation"] == "created"
    assert older["state"] == state


def test_run_over_a_pull_request_reports_the_kernel_it_changes(
        case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Real recording, gates 1 and 2 on a machine without a GPU."""
    scratch = Scratch(tmp_path / "project")
    text = EXAMPLE.read_text().replace("(24, 344)", "(4, 40)")
    base = scratch.commit({"ops/swiglu.py": text, ".kernelopt.yml": f"{CONFIG}device: cpu\n"})
    head = scratch.commit({"ops/swiglu.py": text.replace("elementwise", "element by element")})
    scratch.git("update-ref", "refs/remotes/origin/main", base)
    payload = case.pull_request()
    payload["pull_request"]["head"]["sha"], payload["pull_request"]["base"]["sha"] = head, base
    event, summary = tmp_path / "event.json", tmp_path / "summary.md"
    event.write_text(json.dumps(payload))
    for name, value in {"EVENT_NAME": "pull_request", "EVENT_PATH": str(event), "STEP_SUMMARY": str(summary),
                        "REPOSITORY": case.repo.full_name, "SHA": head}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    monkeypatch.chdir(scratch.root)
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    assert main(["run", "--publish", "local", "--output", str(tmp_path / "out")]) == 0, capsys.readouterr()
    said = summary.read_text()
    assert "Triton kernel `swiglu_kernel` in `ops/swiglu.py`" in said and "your kernel stays as it is" in said
    data = json.loads((tmp_path / "out/report.json").read_text())
    assert [(t["name"], t["kind"]) for t in data["targets"]] == [("ops_swiglu_swiglu_kernel", "triton")]
    best = {v["gate"]: (v["status"], v["reason"]) for v in data["gates"][0]["verdicts"]}
    assert (best["static"][0], best["correctness"][0]) == ("pass", "pass")
    assert best["performance"] == ("not measured", "no GPU")
    assert "no GPU: gates 1 and 2 were run, times were not measured" in said
    assert not (tmp_path / "out/kernelopt.patch").exists()
    assert scratch.git("branch", "--list", "kernelopt-*") == "", "nothing was adopted, so nothing is published"


def test_run_publishes_an_edit_here_and_patches_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch(tmp_path / "project")
    head = scratch.commit({PATH: OPS})
    monkeypatch.chdir(scratch.root)
    repository = open_repository(scratch.root)
    job = Job("push", "", "acme/kernels", head, head, source_branch="main", default_branch="main")
    run = run_of(result(), head=head)
    done = command._published("local", None, repository, job, Config(), run, tmp_path / "run", Swept(), tmp_path)
    assert (done.operation, done.branch) == ("created", "kernelopt-sweep-main")
    assert scratch.git("diff", "--name-only", head, done.branch) == PATH
    patch = write_patch(tmp_path, run, tmp_path / "run", repository, head)
    assert patch is not None
    scratch.git("apply", "--index", str(patch))
    assert scratch.git("write-tree") == scratch.git("rev-parse", f"{done.branch}^{{tree}}")
    scratch.git("reset", "-q", "--hard")
    newer = scratch.commit({PATH: OPS + "# newer\n"})
    stale = command._published("local", None, repository, job, Config(), run, tmp_path / "run", Swept(), tmp_path)
    assert stale.operation == "reported" and stale.reason.startswith("kernels_ops_norm: stale: ")
    assert scratch.git("rev-parse", "main") == newer
