"""The main job on a scratch repository: `make demo`.

Makes a git repository with the three targets of examples/demo, a base and a head commit, and the pull_request event
that GitHub would send, then runs `kernelopt run` with local publication: nothing special to the demo, but what a
runner does. Usage: demo.py OUTPUT [TARGET...]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IDENTITY = {"GIT_AUTHOR_NAME": "demo", "GIT_AUTHOR_EMAIL": "demo@example.invalid",
            "GIT_COMMITTER_NAME": "demo", "GIT_COMMITTER_EMAIL": "demo@example.invalid"}
CONFIG = """\
# The demo's configuration: see docs/configuration.md.
version: 1
budget:
  wall_s: 150
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], env={**os.environ, **IDENTITY}, check=True,
                          capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, names: list[str]) -> tuple[str, str]:
    """A base commit with a pass-through activation and a head commit that changes every model. Returns both SHAs."""
    (folder / "models").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / ".kernelopt.yml").write_text(CONFIG)
    for name in names:
        source = (ROOT / "examples" / "demo" / f"{name}.py").read_text()
        (folder / "models" / f"{name}.py").write_text(source.replace("nn.functional.gelu", "nn.functional.silu"))
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Models")
    base = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "-q", "-b", "faster-models")
    for name in names:
        source = (ROOT / "examples" / "demo" / f"{name}.py").read_text()
        (folder / "models" / f"{name}.py").write_text(source + "\n# reviewed\n")
    git(folder, "commit", "-q", "-a", "-m", "Change the models")
    return base, git(folder, "rev-parse", "HEAD")


def event(base: str, head: str) -> dict[str, object]:
    """The parts of GitHub's pull_request payload that say what changed and who asks."""
    repository = {"id": 1, "name": "models", "full_name": "demo/models", "private": False, "fork": False,
                  "default_branch": "main", "owner": {"login": "demo", "id": 1, "type": "Organization"}}
    user = {"login": "developer", "id": 2, "type": "User"}
    return {"action": "synchronize", "number": 1, "repository": repository, "sender": user,
            "pull_request": {"number": 1, "title": "Change the models", "state": "open", "draft": False, "user": user,
                             "labels": [], "body": None, "merged": False,
                             "head": {"ref": "faster-models", "sha": head, "repo": repository, "user": user},
                             "base": {"ref": "main", "sha": base, "repo": repository, "user": user}}}


def main(output: Path, names: list[str]) -> int:
    output = output.resolve()
    if output.exists():
        shutil.rmtree(output)
    base, head = make_repository(output / "repository", names)
    payload = output / "event.json"
    payload.write_text(json.dumps(event(base, head), indent=1))
    environment = {**os.environ, "GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(payload),
                   "GITHUB_REPOSITORY": "demo/models"}
    for name in ("GITHUB_TOKEN", "GH_TOKEN"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "kernelopt_bot", "run", "--publish", "local", "--output", str(output)]
    return subprocess.run(command, env=environment, cwd=output / "repository", check=False).returncode


if __name__ == "__main__":
    chosen = sys.argv[2:] or sorted(p.stem for p in (ROOT / "examples" / "demo").glob("*.py"))
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"), chosen))
