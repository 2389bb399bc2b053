"""The manifest against the code, and the reusable workflow against the manifest."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kernelopt_bot.cli import authorise, execute, outcome, publish, run
from kernelopt_bot.publish.publication import Published
from kernelopt_bot.search.result import RunResult
from tools import pin_image

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
CALLED: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/kernelopt.yml").read_text())
STEP = ACTION["runs"]["steps"][-1]
SCRIPT = (ROOT / "tools/phase.sh").read_text()
NOT_PASSED = {"token"}


def test_every_input_is_used_and_every_used_one_declared() -> None:
    used = set(re.findall(r"inputs\.([a-z-]+)", json.dumps(ACTION["runs"])))
    assert used == set(ACTION["inputs"])


def test_every_variable_of_the_step_is_read_by_the_phase() -> None:
    code = SCRIPT + "".join(p.read_text() for p in (ROOT / "kernelopt_bot").rglob("*.py"))
    for name in STEP["env"]:
        assert re.search(rf"\b{name}\b", code), name
    for name in set(re.findall(r"\$\{?(KERNELOPT_[A-Z_]+)", SCRIPT)):
        assert name in STEP["env"], name


def test_inputs_say_their_default() -> None:
    for name, given in ACTION["inputs"].items():
        said = given["description"].rpartition("Default is ")[2].rstrip(".")
        default = str(given["default"])
        known = {"${{ github.token }}": "the job's own token"}
        assert said == known.get(default, f"`{default}`") or (not default and said.startswith("empty, ")), name


def test_outputs_are_those_that_the_phases_write() -> None:
    values = outcome.values(RunResult((), ""), Published("reported"), None)
    decided = {"execute", "proceed", "reason", "artifact", "source", "head-sha"}
    assert set(ACTION["outputs"]) == set(values) | decided
    assert {k for k in authorise._NOTHING} | {"reason"} == decided
    for name, out in ACTION["outputs"].items():
        assert out["value"] == f"${{{{ steps.run.outputs.{name} }}}}"


@pytest.mark.parametrize(("phase", "command"), [
    ("all", run.command), ("authorise", authorise.command), ("execute", execute.command), ("publish", publish.command)])
def test_a_phase_passes_options_that_its_command_has(phase: str, command: Any, tmp_path: Path) -> None:
    """The real script with a stand-in for the executable, which prints what it was given."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    fake = tmp_path / ".venv/bin/kernelopt"
    fake.write_text("#!/bin/sh\nprintf '%s\\n' \"$PWD\" \"$@\"\n")
    fake.chmod(0o755)
    (tmp_path / "a b").mkdir()
    values = {"PATH": os.environ["PATH"], **{name: "" for name in STEP["env"]}} | {
        "KERNELOPT_ACTION": str(tmp_path), "KERNELOPT_PHASE": phase, "KERNELOPT_DIRECTORY": "a b",
        "KERNELOPT_PUBLISH": "report", "KERNELOPT_JOB": "j/job.json", "KERNELOPT_BUNDLE": "b; touch x",
        "KERNELOPT_OUTPUT": "/abs/out", "KERNELOPT_EXECUTE_RESULT": "failure"}
    done = subprocess.run([ROOT / "tools/phase.sh"], cwd=tmp_path, env=values, capture_output=True, text=True,
                          check=True, timeout=20)
    where, name, *arguments = done.stdout.splitlines()
    assert where == str(tmp_path / "a b" if phase in ("all", "execute") else tmp_path)
    assert name == {"all": "run"}.get(phase, phase)
    context = command.make_context(name, list(arguments))
    assert not context.args
    if phase in ("execute", "publish"):
        assert f"{tmp_path}/b; touch x" in arguments and not (tmp_path / "x").exists()


def test_an_unknown_phase_is_refused() -> None:
    values = {name: "" for name in STEP["env"]} | {"PATH": os.environ["PATH"], "KERNELOPT_PHASE": "x"}
    done = subprocess.run([ROOT / "tools/phase.sh"], env=values, capture_output=True, text=True, timeout=20,
                          check=False)
    assert done.returncode == 2 and "authorise" in done.stderr


def test_execute_gets_no_token() -> None:
    assert STEP["env"]["GITHUB_TOKEN"] == "${{ inputs.phase != 'execute' && inputs.token || '' }}"
    assert STEP["env"]["KERNELOPT_APP_TOKEN"] == "${{ inputs.phase == 'publish' && inputs.app-token || '' }}"


def test_an_apps_token_is_minted_in_publish_alone_for_branches_and_pull_requests() -> None:
    minting = [(job, s) for job, x in CALLED["jobs"].items() for s in x["steps"]
               if s.get("uses", "").startswith("actions/create-github-app-token@")]
    given = CALLED["jobs"]["publish"]["steps"][-1]["with"]
    assert minting
    for job, step in minting:
        assert job == "publish" and "inputs.app-id != ''" in step["if"]
        asked = {k.removeprefix("permission-"): v for k, v in step["with"].items() if k.startswith("permission-")}
        # `issues` is for the dashboard; check and comment are the job's own token's.
        assert asked.pop("issues", "write") == "write"
        assert asked == {"contents": "write", "pull-requests": "write"}
        assert f"steps.{step['id']}.outputs.token" in given["app-token"]
        assert f"steps.{step['id']}.outputs.app-slug" in given["app-slug"]
    others = json.dumps({k: v for k, v in CALLED["jobs"].items() if k != "publish"})
    assert "secrets." not in others and "app-id" not in others


def test_the_reusable_workflow_uses_what_the_action_has() -> None:
    for job in CALLED["jobs"].values():
        for step in job["steps"]:
            if step.get("uses") == "./kernelopt":
                assert set(step["with"]) <= set(ACTION["inputs"])
                assert step["with"]["phase"] in ("authorise", "execute", "publish")
    text = json.dumps(CALLED["jobs"])
    for step, name in re.findall(r"steps\.(authorise|publish)\.outputs\.([a-z-]+)", text):
        assert name in ACTION["outputs"], (step, name)
    for job, name in re.findall(r"needs\.([a-z]+)\.outputs\.([a-z-]+)", text):
        assert name in CALLED["jobs"][job]["outputs"], (job, name)
    declared = CALLED[True]["workflow_call"]
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(declared["inputs"])
    assert set(re.findall(r"secrets\.([a-z-]+)", text)) == set(declared["secrets"])
    for output in declared["outputs"].values():
        name = re.search(r"jobs\.publish\.outputs\.([a-z-]+)", output["value"])
        assert name is not None and name[1] in CALLED["jobs"]["publish"]["outputs"]


def test_a_release_pins_its_image(tmp_path: Path) -> None:
    action = tmp_path / "action.yml"
    action.write_text((ROOT / "action.yml").read_text())
    image = f"ghcr.io/owner/kernelopt-bot/worker@sha256:{'a' * 64}"
    assert pin_image.main([image], action) == 0
    assert yaml.safe_load(action.read_text())["inputs"]["image"]["default"] == image
    assert pin_image.main(["ghcr.io/owner/worker:latest"], action) == 2
