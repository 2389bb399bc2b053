"""The workflows: pinned, least permissions, no expression in a script, clean by the linters."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
OWN = sorted((ROOT / ".github/workflows").glob("*.yml"))
OFFERED = sorted((ROOT / "docs/workflows").glob("*.yml"))
CALLED: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/kernelopt.yml").read_text())
every = pytest.mark.parametrize("path", [*OWN, *OFFERED], ids=lambda p: p.name)
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")


def load(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def used(path: Path) -> Iterator[str]:
    for job in load(path)["jobs"].values():
        yield from (x["uses"] for x in [job, *job.get("steps", [])] if "uses" in x)


@every
def test_permissions_are_none_above_and_given_to_each_job(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert all(job["permissions"] for job in workflow["jobs"].values())


@every
def test_actions_are_pinned(path: Path) -> None:
    for action in used(path):
        assert action == "./kernelopt" or PINNED.fullmatch(action), action
    for line in path.read_text().splitlines():
        if PINNED.search(line):
            assert re.search(r"# v\d", line), f"the version is not named: {line}"


@every
def test_no_expression_in_a_script_and_no_dangerous_event(path: Path) -> None:
    workflow = load(path)
    scripts = [s["run"] for job in workflow["jobs"].values() for s in job.get("steps", []) if "run" in s]
    assert not any("${{" in s for s in scripts)
    events = workflow[True]  # YAML 1.1 reads `on` so.
    assert not {"pull_request_target", "workflow_run"} & set([events] if isinstance(events, str) else events)


def test_the_composite_action_has_no_expression_in_a_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert not any("${{" in s["run"] for s in action["runs"]["steps"])


def test_checkouts_leave_no_credentials() -> None:
    for path in [*OWN, *OFFERED]:
        for job in load(path)["jobs"].values():
            for step in job.get("steps", []):
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False, path.name


def test_execute_reads_only_and_alone_has_concurrency() -> None:
    jobs = CALLED["jobs"]
    assert jobs["execute"]["permissions"] == {"contents": "read"}
    assert "secrets" not in yaml.safe_dump(jobs["execute"])
    assert "concurrency" not in CALLED
    assert [name for name, job in jobs.items() if "concurrency" in job] == ["execute"]
    assert jobs["publish"]["if"].startswith("always()"), "the check run is concluded whatever became of execute"
    assert set(jobs["publish"]["needs"]) == {"authorise", "execute"}


def test_only_publish_may_write_contents_and_runs_none_of_the_repository() -> None:
    jobs = CALLED["jobs"]
    assert [n for n, job in jobs.items() if job["permissions"].get("contents") == "write"] == ["publish"]
    for name in ("authorise", "publish"):
        fetched = [s["with"] for s in jobs[name]["steps"] if s["uses"].startswith("actions/checkout@")]
        assert [w["repository"] for w in fetched] == ["${{ job.workflow_repository }}"], name


def test_nothing_that_fails_in_publish_keeps_the_check_open() -> None:
    """What execute or GitHub's storage left, an archive without end among it, and an App's key that is none."""
    steps = CALLED["jobs"]["publish"]["steps"]
    assert "phase" in steps[-1]["with"] and "needs.authorise.outputs.head-sha" in steps[-1]["with"]["head-sha"]
    before = [s for s in steps[:-1] if not s["uses"].startswith("actions/checkout@")]
    assert len(before) == 4 and all(s["continue-on-error"] is True for s in before)
    waits = [s["timeout-minutes"] for s in before if "download-artifact" in s["uses"]]
    assert len(waits) == 2 and sum(waits) < CALLED["jobs"]["publish"]["timeout-minutes"]
    assert steps[-1]["with"]["publish"].startswith("${{ inputs.app-id != '' && steps.app.outputs.token == ''")


def test_callers_grant_what_the_called_jobs_ask_for() -> None:
    levels = ["none", "read", "write"]
    for path in OFFERED:
        for job in load(path)["jobs"].values():
            if "uses" not in job:
                continue
            for called in CALLED["jobs"].values():
                for scope, level in called["permissions"].items():
                    assert levels.index(job["permissions"].get(scope, "none")) >= levels.index(level), (path, scope)
            assert set(job["with"]) <= set(CALLED[True]["workflow_call"]["inputs"])


def test_the_first_run_is_short_and_writes_nothing() -> None:
    path = ROOT / "docs/workflows/first-run.yml"
    [job] = load(path)["jobs"].values()
    assert len(path.read_text().splitlines()) <= 15
    assert job["permissions"] == {"contents": "read"}
    assert next(s for s in job["steps"] if "kernelopt-bot" in s.get("uses", ""))["with"]["publish"] == "report"


def test_the_readme_shows_the_first_run_as_it_is() -> None:
    """By tags, to be read; without the last step."""
    block = re.search(r"^```yaml\n(    runs-on:.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert block is not None
    text = re.sub(r"@[0-9a-f]{40} # (v\d)\S*", r"@\1", (ROOT / "docs/workflows/first-run.yml").read_text())
    [job] = yaml.safe_load(text)["jobs"].values()
    assert "upload-artifact" in job["steps"].pop()["uses"]
    assert yaml.safe_load(block[1]) == job


def test_offered_events_are_those_that_the_bot_acts_on() -> None:
    events = (ROOT / "kernelopt_bot/events/payload.py").read_text()
    for path in OFFERED:
        named = load(path)[True]
        for event in [named] if isinstance(named, str) else named:
            assert f'case "{event}":' in events


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
    ["zizmor", "--offline", "--no-progress", "--quiet"]], ids=lambda c: c[0])
def test_linters_find_nothing(command: list[str]) -> None:
    linter = Path(sys.executable).with_name(command[0])
    if not linter.exists():
        pytest.skip(f"{command[0]} is not installed beside this interpreter")
    files = [*OWN, *OFFERED] + ([ROOT / "action.yml"] if command[0] == "zizmor" else [])
    done = subprocess.run([linter, *command[1:], *files], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_dockerfile() -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.M)
    assert {"cpu", "cuda"} <= set(stages) and stages[-1] == "cuda", "the default target"
    assert text.count("USER 65534:65534") == 2
    assert re.search(r"^ARG CUDA_BASE=nvidia/cuda:[\w.-]+@sha256:[0-9a-f]{64}$", text, re.M)
    linter = shutil.which("hadolint") or Path(sys.executable).with_name("hadolint")
    if not Path(linter).exists():
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
