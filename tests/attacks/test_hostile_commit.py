"""The phase execute at a commit that holds all that a stranger can put into one, on a runner that keeps things."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelopt_bot.cli.phases import Order, write_order
from kernelopt_bot.compiler.artifact import Recipe, write_artifact
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.events.job import Job, PullRequest
from kernelopt_bot.publish import bundle
from kernelopt_bot.targets.git import open_repository
from tests.targets.conftest import Scratch

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-that-nobody-may-see"
POLICY = "version: 1\ndevice: cpu\nlevers: [launch]\nrunner: { ephemeral: true }\n"
COMMANDS = ("::set-output name=operation::created", "::add-path::/tmp/evil", "::add-mask::x", "::error::x",
            "##[set-output name=operation]created", "x ##[add-matcher]evil.json", "::stop-commands::x",
            "<!-- kernelopt:comment --> @octocat ${{ secrets.KEY }}")
LOUD = """
import os, sys
import torch

for line in {lines!r}:
    print(line)
    print(line, file=sys.stderr, flush=True)
    os.write(1, (line + "\\n").encode())
for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT"):
    try:
        open(os.environ[name], "a").write("EVIL=1\\n")
    except (KeyError, OSError):
        pass
{touch}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        raise RuntimeError("\\n".join({lines!r}) + os.environ.get("GITHUB_TOKEN", ""))

    def forward(self, x):
        return x


def get_inputs():
    return [torch.randn(4)]
"""


@dataclass(frozen=True)
class Executed:
    """What is left of it. `here` holds everything of the runner, `canary` is what code outside a jail would write."""

    here: Path
    code: int
    out: str
    err: str
    job: Job

    @property
    def canary(self) -> Path:
        return self.here / "canary"

    @property
    def report(self) -> str:
        return (self.here / "bundle/report.json").read_text()


def touching(canary: Path) -> str:
    return f"import contextlib\nwith contextlib.suppress(OSError):\n    open({str(canary)!r}, 'w').close()\n"


def hostile(scratch: Scratch, canary: Path, here: Path) -> str:
    """A commit with all of it; returns its SHA."""
    touch, script = touching(canary), f"#!/bin/sh\ntouch '{canary}'\n"
    names = ("a;touch canary.py", "$(touch canary).py", "`id`.py", "new\nline.py", "--help.py", "\u202egnp.py")
    files: dict[str, str | bytes | None] = {f"models/{name}": f"import torch\n{touch}" for name in names}
    files |= dict.fromkeys(("conftest.py", "sitecustomize.py", "usercustomize.py", "kernelopt_bot/__init__.py",
                            "click.py", "setup.py", "models/conftest.py"), touch)
    files |= {
        "models/block.py": LOUD.format(lines=COMMANDS, touch=touch), "tool.sh": script, "bin/python": script,
        ".kernelopt.yml": "version: 1\nsandbox: process\nenvironment: { python: bin/python }\nlevers: [dispatch]\n"
                          "publish: { branch_prefix: main, labels: [evil] }\nbudget: { wall_s: 99999 }\n",
        ".gitattributes": "* filter=evil diff=evil merge=evil text eol=crlf ident\n",
        ".lfsconfig": "[lfs]\n\turl = https://example.invalid\n", ".github/workflows/evil.yml": "on: push\n",
        ".gitmodules": f"[submodule \"vendor\"]\n\tpath = vendor\n\turl = ext::sh -c \"touch {canary}\"\n"}
    scratch.commit(files)
    for link, goal in (("models/leak.py", "/etc/passwd"), ("models/up.py", "../../secret.py"), ("data", "/"),
                       ("kernelopt_kernels", str(here))):
        (scratch.root / link).symlink_to(goal)
    scratch.git("add", "-A", "-f")
    scratch.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor")
    scratch.git("commit", "-q", "-m", "hostile\n\n::set-output name=operation::created")
    return scratch.git("rev-parse", "HEAD")


def prepared(scratch: Scratch, canary: Path) -> None:
    """What an earlier job left in a clone that is kept: hooks and settings that start programs."""
    script = canary.parent / "hook.sh"
    script.write_text(f"#!/bin/sh\ntouch '{canary}'\ncat\n")
    script.chmod(0o755)
    hooks = scratch.root / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "post-merge"):
        (hooks / name).write_bytes(script.read_bytes())
        (hooks / name).chmod(0o755)
    for key in ("filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "diff.evil.textconv",
                "diff.evil.command", "core.fsmonitor", "core.sshCommand", "core.pager", "diff.external"):
        scratch.git("config", key, str(script))
    # The control: git as a person calls it runs what lies there.
    scratch.git("status")
    assert canary.exists()
    canary.unlink()


def execute(here: Path, root: Path, job: Job, policy: str) -> Executed:
    """The phase as the composite action starts it: by an installed script, in the checkout."""
    write_order(Order(job, policy), here / "job.json")
    for name in ("env", "path", "outputs", "summary"):
        (here / name).touch()
    values = {
        "PATH": os.environ["PATH"], "HOME": str(here), "PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "true", "CI": "true",
        "GITHUB_TOKEN": TOKEN, "GITHUB_ENV": str(here / "env"), "GITHUB_PATH": str(here / "path"),
        "GITHUB_OUTPUT": str(here / "outputs"), "GITHUB_STEP_SUMMARY": str(here / "summary")}
    command = [sys.executable, "-P", "-m", "kernelopt_bot", "execute", "--job", str(here / "job.json"), "--bundle",
               str(here / "bundle"), "--output", str(here / "out")]
    done = subprocess.run(command, cwd=root, env=values, capture_output=True, text=True, timeout=200, check=False)
    return Executed(here, done.returncode, done.stdout, done.stderr, job)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    here = tmp_path_factory.mktemp("runner")
    (here / "secret.py").write_text("import torch\nSECRET = 'sesame'\n")
    scratch = Scratch(here / "repository")
    base = scratch.commit({".kernelopt.yml": POLICY, "models/block.py": "import torch\n"})
    head = hostile(scratch, here / "canary", here)
    prepared(scratch, here / "canary")
    pull = PullRequest(7, "x", "stranger", "x;touch${IFS}canary", head, "main", base, fork=True, draft=False)
    job = Job("issue_comment", "created", "acme/kernels", head, base, pull, number=7, source_branch=pull.head_ref,
              report_only=True)
    return execute(here, scratch.root, job, base)


def test_it_ends_with_a_report_of_the_models_error(executed: Executed) -> None:
    assert executed.code == 2, executed.out + executed.err
    data = json.loads(executed.report)
    assert [t["entry"] for t in data["targets"]] == ["Model"] and not data["adopted"]
    assert "RuntimeError" in json.dumps(data["targets"][0])
    held = bundle.read(executed.here / "bundle", executed.here / "read", executed.job, "kernelopt_kernels")
    assert not held.summary.faster


def test_nothing_of_the_commit_ran_outside_a_jail(executed: Executed) -> None:
    assert not executed.canary.exists()
    assert not list(executed.here.rglob("canary*")) and not list(Path.cwd().glob("canary*"))


def test_the_policy_is_the_default_branchs(executed: Executed) -> None:
    assert "process" not in (executed.here / "out/report.md").read_text().lower().replace("processor", "")
    assert "bin/python" not in executed.out + executed.err


def test_no_line_of_the_log_is_a_command(executed: Executed) -> None:
    for stream in (executed.out, executed.err):
        lines = stream.splitlines()
        stop = next(i for i, line in enumerate(lines) if line.startswith("::stop-commands::"))
        word = lines[stop].removeprefix("::stop-commands::")
        assert len(word) == 32 and stream.count(word) == 1, "never taken back"
        assert all(line.startswith("::add-mask::") for line in lines[:stop])
    assert "set-output" in executed.out + executed.err, "what it said is told, as text"


def test_the_runners_files_are_untouched(executed: Executed) -> None:
    assert (executed.here / "env").read_text() == (executed.here / "path").read_text() == ""
    assert "EVIL" not in (executed.here / "outputs").read_text()


def test_no_secret_is_in_what_is_kept(executed: Executed) -> None:
    kept = [p for folder in ("bundle", "out") for p in (executed.here / folder).rglob("*") if p.is_file()]
    assert kept
    for path in kept:
        text = path.read_bytes()
        assert TOKEN.encode() not in text and b"sesame" not in text and b"root:x:0:0" not in text, path
    assert TOKEN not in executed.out + executed.err.replace(f"::add-mask::{TOKEN}", "")


def test_what_people_read_is_text(executed: Executed) -> None:
    for path in (executed.here / "out/report.md", executed.here / "summary"):
        # Code spans and blocks are shown as they are.
        plain = re.sub(r"`+[^`]*`+", "", re.sub(r"(?ms)^(`{3,}).*?^\1$", "", path.read_text()))
        assert "<!-- kernelopt:comment" not in plain and "@octocat" not in plain, path
    command = json.loads(executed.report)["command"]
    assert shlex.split(command) == ["kernelopt", "optimize", "models/block.py:Model"]


def test_links_submodules_and_names_are_left_out_with_a_word(executed: Executed) -> None:
    for word in ("leak.py", "up.py", "vendor"):
        assert re.search(rf"not in the checkout: \S*{re.escape(word)}", executed.err), word
    assert open_repository(executed.here / "repository").commit("HEAD") == executed.job.head_sha


def test_an_edited_artifact_is_found_and_not_run(tmp_path: Path) -> None:
    """Nightly: host code in a committed artifact, whose manifest says nothing of it."""
    scratch = Scratch(tmp_path / "repository")
    for name in ("net", "gone"):
        write_artifact(scratch.root / "kernelopt_kernels" / name, class_name="Model",
                       program=Program(name, "cpu", (), "2.0.0", "3.0.0", "cpu", {}), kernels=[], recipe=Recipe.of({}),
                       environment={"torch": "2.0.0", "triton": "3.0.0", "device": "cpu"},
                       evidence={"speedup": 1.5, "low": 1.4, "high": 1.6, "baseline": "default"})
    script = scratch.root / "kernelopt_kernels/net/__init__.py"
    script.write_text(touching(tmp_path / "canary") + script.read_text())
    model = "import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n\n\ndef get_inputs():\n    return []\n"
    head = scratch.commit({".kernelopt.yml": POLICY, "net.py": touching(tmp_path / "canary") + model})
    job = Job("schedule", "", "acme/kernels", head, head, operation="verify", sweep=True, source_branch="main")
    done = execute(tmp_path, scratch.root, job, head)
    assert done.code == 0, done.out + done.err
    account = json.loads((tmp_path / "bundle/account.json").read_text())
    found = {v["artifact"]: v for v in account["swept"]["verified"]}["kernelopt_kernels/net"]
    assert found["state"] == "modified" and "__init__" in found["reason"]
    assert not done.canary.exists()
