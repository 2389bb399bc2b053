"""Time-outs, kill ladder, bounded output, environment and redaction; and that nothing else starts processes."""

from __future__ import annotations

import ast
import os
import sys
import time
from pathlib import Path

import pytest

import kernelopt_bot
from kernelopt_bot import process

PYTHON = [sys.executable, "-I", "-S", "-c"]
EMPTY: dict[str, str] = {}


def python(code: str, **options: object) -> process.Completed:
    return process.run([*PYTHON, code], **{"timeout": 20, "environment": EMPTY, **options})  # type: ignore[arg-type]


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_output_code_and_input() -> None:
    done = python("import sys; print(sys.stdin.read()[::-1]); print('e', file=sys.stderr); sys.exit(3)",
                  input=b"abc", check=False)
    assert (done.code, done.stdout, done.stderr) == (3, "cba\n", "e\n")


def test_large_input_to_a_program_that_does_not_read_it() -> None:
    assert python("pass", input=b"x" * 4_000_000).code == 0


def test_environment_is_only_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "hidden")
    monkeypatch.setenv("LANG", "C.UTF-8")
    given = process.environment(extra={"EXTRA": "1"})
    assert given["LANG"] == "C.UTF-8" and given["EXTRA"] == "1" and "GITHUB_TOKEN" not in given
    assert "GITHUB_TOKEN" not in python("import os; print(list(os.environ))").stdout


def test_failure_shows_command_code_and_tails() -> None:
    with pytest.raises(process.ProcessFailed) as caught:
        python("import sys; print('out'); print('why', file=sys.stderr); sys.exit(4)")
    assert caught.value.code == 4
    assert "code 4" in str(caught.value) and "why" in caught.value.stderr and "out" in caught.value.stdout


def test_missing_program() -> None:
    with pytest.raises(process.ProcessMissing, match="cannot be started"):
        process.run(["/nonexistent/program"], timeout=1, environment=EMPTY)


def test_timeout_takes_children_along(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    begin = time.monotonic()
    with pytest.raises(process.ProcessTimeout) as caught:
        python(code, timeout=1.5)
    assert time.monotonic() - begin < 10
    assert gone(int(caught.value.stdout))


def test_a_program_that_ignores_sigterm_is_killed() -> None:
    started = process.start(
        [*PYTHON, "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
         "time.sleep(60)"], environment=EMPTY)
    assert started.stdout is not None and started.stdout.read(3) == b"up\n"
    assert process.stop(started, grace=0.3) == -9


def test_a_child_that_keeps_the_pipes_does_not_hold_up_the_result() -> None:
    begin = time.monotonic()
    done = python("import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
                  "print('done')")
    assert done.stdout == "done\n"
    assert time.monotonic() - begin < 15


def test_output_is_bounded_and_keeps_both_ends() -> None:
    done = python("import sys; sys.stdout.write('first' + 'x' * 300000 + 'last')", limit=2000)
    assert len(done.stdout) < 2100
    assert done.stdout.startswith("first") and done.stdout.endswith("last") and "left out" in done.stdout


@pytest.mark.parametrize("secret", [
    "ghp_0123456789abcdefABCD", "ghs_0123456789abcdefABCD", "github_pat_11AAAA_0123456789", "sk-proj-0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
])
def test_redacts_known_forms(secret: str) -> None:
    assert secret not in process.redact(f"before {secret} after")
    assert process.redact(f"before {secret} after") == "before *** after"


def test_redacts_headers_addresses_and_values_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_API_KEY", "no-known-form-1234")
    text = "AUTHORIZATION: basic eHl6OmFiYw== https://user:pass@host/x no-known-form-1234"
    assert process.redact(text) == "AUTHORIZATION: *** https://***@host/x ***"
    assert process.redact("the task-list of risk-averse people") == "the task-list of risk-averse people"


def test_errors_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "value-of-the-token")
    with pytest.raises(process.ProcessFailed) as caught:
        python("import sys; sys.stderr.write('value-of-the-token'); sys.exit('ghp_0123456789abcdef')")
    assert "value-of-the-token" not in str(caught.value)
    assert "ghp_" not in str(caught.value) and "ghp_" not in " ".join(caught.value.command)


def test_nothing_else_starts_processes() -> None:
    root = Path(kernelopt_bot.__file__).parent
    forbidden = {"subprocess", "multiprocessing", "pty", "asyncio.subprocess"}
    calls = {"system", "popen", "fork", "forkpty", "posix_spawn", "execv", "execve", "execvp", "spawnv"}
    guilty = []
    for file in root.rglob("*.py"):
        name = file.relative_to(root).as_posix()
        if name in ("process.py", "sandbox/launcher.py") or name.startswith("sandbox/worker/"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            if forbidden & set(modules):
                guilty.append(f"{name}: {modules}")
            if (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
                    and node.attr in calls):
                guilty.append(f"{name}: os.{node.attr}")
    assert guilty == []
