"""The composite action, run by `act` on real payloads against the GitHub stand-in.

act (https://github.com/nektos/act) runs composite actions without Docker and puts the workspace together by copying, so
nothing comes from the network. What it cannot do here is to run actions of others that are written for Node, such as
`upload-artifact`: they would have to be downloaded. Between the phases the files therefore lie in the workspace.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.events.job import Job
from kernelopt_bot.publish import bundle
from kernelopt_bot.report.build import build
from kernelopt_bot.search.result import RunResult
from tests.cli.conftest import RUN, Case, case  # noqa: F401  (a fixture)
from tests.github_stand_in import TOKEN
from tests.publish.test_bundle import made  # noqa: F401  (a fixture)

ROOT = Path(__file__).parents[2]
ACT = shutil.which("act", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(ACT is None, reason="act is not installed (requirements-dev.lock)")]

WORKFLOW = """\
on: [pull_request, issue_comment, schedule]
permissions: {}
jobs:
  kernelopt:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
      - name: act copies without times; the environment is as new as its locks
        run: touch kernelopt/.venv/.kernelopt-hosted
      - id: authorise
        uses: ./kernelopt
        with: { phase: authorise, app: kernelopt }
      - id: publish
        if: "'RESULT' != '' && steps.authorise.outputs.proceed == 'true'"
        uses: ./kernelopt
        with: { phase: publish, app: kernelopt, execute-result: "RESULT" }
      - name: What the steps say
        env:
          SAID: ${{ toJSON(steps) }}
        run: printf '%s\\n' "$SAID" > "$RECORD"
"""


def _action(folder: Path) -> None:
    """The action as it is, with a `.venv` that its first step finds ready; installing anything there would fail."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / "tools").mkdir()
    for name in ("action.yml", "tools/phase.sh", "tools/setup.sh", "requirements.lock", "requirements-dev.lock",
                 "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    scripts = {"python": "echo 'this environment is ready: nothing may be installed' >&2; exit 9",
               "kernelopt": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m kernelopt_bot "$@"'}
    for name, line in scripts.items():
        (folder / ".venv/bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / ".venv/bin" / name).chmod(0o755)
    (folder / ".venv/.kernelopt-hosted").touch()


def act(case: Case, event: str, payload: dict[str, Any], result: str = "success",  # noqa: F811
        prepared: Path | None = None) -> dict[str, dict[str, str]]:
    """Runs the workflow in a clone of the stand-in's repository; the outputs of its steps. Without a `result` of the
    phase execute, nothing is published."""
    assert ACT is not None
    clone, record = case.folder / "clone", case.folder / "steps.json"
    subprocess.run(["git", "clone", "-q", str(case.repo.path), str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "remote", "set-url", "origin",
                    f"https://github.com/{case.repo.full_name}.git"], check=True)
    _action(clone / "kernelopt")
    (clone / ".github/workflows").mkdir(parents=True)
    (clone / ".github/workflows/kernelopt.yml").write_text(WORKFLOW.replace("RESULT", result))
    if prepared is not None:
        shutil.copytree(prepared, clone / "kernelopt-bundle")
    (case.folder / "event.json").write_text(json.dumps(payload))
    given = {"GITHUB_API_URL": case.hub.url, "GITHUB_RUN_ID": str(RUN), "RECORD": str(record),
             "PIP_NO_INDEX": "1", "KERNELOPT_SKIP_APT": "1"}
    command = [ACT, event, "-C", str(clone), "-W", ".github/workflows/kernelopt.yml", "-e",
               str(case.folder / "event.json"), "-P", "ubuntu-latest=-self-hosted", "-s", f"GITHUB_TOKEN={TOKEN}",
               "--no-cache-server", "--action-offline-mode", *(x for k, v in given.items() for x in (
                   "--env", f"{k}={v}"))]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"], "HOME": str(case.folder)}, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert TOKEN not in done.stdout + done.stderr
    return {name: step["outputs"] for name, step in json.loads(record.read_text()).items()}


def test_a_pull_request_becomes_one_of_ours(case: Case, made: tuple[RunResult, Path]) -> None:  # noqa: F811
    payload = case.pull_request()
    job = Job("pull_request", "opened", case.repo.full_name, case.head, case.repo.sha("main"), number=case.number)
    run = replace(made[0], head_sha=job.head_sha, base_sha=job.base_sha, repository=job.repository,
                  pull_request=job.number)
    bundle.write(case.folder / "bundle", job, run, build(run), made[1])
    said = act(case, "pull_request", payload, prepared=case.folder / "bundle")
    assert said["authorise"]["execute"] == "true" and said["authorise"]["head-sha"] == case.head
    assert said["publish"]["operation"] == "created", said
    ours = case.repo.pulls[int(said["publish"]["pull-request-number"])]
    assert ours["base"]["ref"] == "faster-models" and float(said["publish"]["speedup"]) > 1
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "success")


def test_a_command_whose_runner_was_lost_is_answered(case: Case) -> None:  # noqa: F811
    said = act(case, "issue_comment", case.comment("/kernelopt optimize"), result="cancelled")
    assert said["authorise"]["artifact"] == f"kernelopt-command-pr-{case.number}"
    assert said["publish"]["operation"] == "reported"
    assert case.check["conclusion"] == "cancelled"
    assert [r["content"] for r in case.repo.reactions] == ["eyes", "rocket", "confused"]
    [answer] = [c for i, c in case.repo.comments.items() if i != case.asking]
    assert "cancelled" in answer["body"]


def test_a_sweep_is_authorised_and_shown(case: Case) -> None:  # noqa: F811
    said = act(case, "schedule", {"schedule": "17 2 * * *"}, result="")
    assert said["authorise"]["execute"] == "true" and said["authorise"]["head-sha"] == case.repo.sha("main")
    assert said["authorise"]["source"].startswith("branch-")
    assert (case.check["head_sha"], case.check["status"]) == (case.repo.sha("main"), "queued")
