"""The phase publish meets a bundle that somebody else wrote. `tests/publish/test_bundle.py` tries each way to do so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.search.result import RunResult
from tests.cli.conftest import Case
from tests.publish.test_bundle import ARTIFACT

FORGED = "##[set-output name=operation]created"
LINES = f"::set-output name=operation::created\n{FORGED}\n<!-- kernelopt:comment -->\n@octocat <b>x</b> ${{{{ x }}}}"


def workflow(folder: Path) -> None:
    (folder / "artifacts/.github/workflows").mkdir(parents=True)
    (folder / "artifacts/.github/workflows/evil.yml").write_text("on: push\n")


def command_in_a_name(folder: Path) -> None:
    (folder / f"{FORGED}.svg").write_text("<svg/>")


def host_code(folder: Path) -> None:
    kernel = next((folder / "artifacts" / ARTIFACT / "kernels").glob("*.py"))
    kernel.write_text(kernel.read_text() + "import os\n")


def link(folder: Path) -> None:
    (folder / "report.md").unlink()
    (folder / "report.md").symlink_to("/etc/passwd")


def large(folder: Path) -> None:
    with (folder / "report.json").open("r+b") as file:
        file.truncate(1 << 40)


def another_function(folder: Path) -> None:
    """The artifact's test would call it, in the repository's own checks."""
    report = folder / "report.json"
    data = json.loads(report.read_text())
    data["targets"][0]["inputs"] = "scripts/deploy.py:main"
    report.write_text(json.dumps(data))


@pytest.mark.parametrize("attack", [workflow, command_in_a_name, host_code, link, large, another_function],
                         ids=lambda f: f.__name__)
def test_it_is_refused_and_the_check_says_so(case: Case, made: tuple[RunResult, Path], attack: Callable[[Path], None],
                                             capsys: pytest.CaptureFixture[str]) -> None:
    case.run("authorise")
    case.execute(*made)
    attack(case.folder / "bundle")
    capsys.readouterr()
    assert case.publish() == 2
    assert case.outputs["operation"] == "reported" and len(case.repo.pulls) == 1
    assert case.repo.git("branch", "--list", "kernelopt-*") == ""
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "failure")
    for stream in capsys.readouterr():
        before, stop, _ = stream.partition("::stop-commands::")
        assert stop and FORGED not in before


def test_forged_words_in_a_report_stay_text(case: Case, made: tuple[RunResult, Path]) -> None:
    case.run("authorise")
    case.execute(*made)
    report = case.folder / "bundle/report.json"
    data = json.loads(report.read_text())
    data["stopped"] = LINES
    data["skipped"] = [{"what": LINES, "reason": LINES}]
    report.write_text(json.dumps(data))
    assert case.publish() == 0
    seen = [case.check["output"]["summary"] or "", case.check["output"]["text"] or "",
            (case.folder / "summary.md").read_text(),
            *(c["body"].partition("\n")[2] for i, c in case.repo.comments.items() if i != case.asking),
            *(p["body"] for n, p in case.repo.pulls.items() if n != case.number)]
    assert any("octocat" in text for text in seen), "it is told"
    for text in seen:
        plain = re.sub(r"(`+)[^`]+\1", "", re.sub(r"(?ms)^(`{3,}).*?^\1$", "", text))
        assert "@octocat" not in plain and "<b>" not in plain and "<!-- kernelopt:comment" not in plain
        assert not re.search(r"(?m)^::", plain)
    assert case.outputs["operation"] == "created"
