from __future__ import annotations

import pytest

from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.sandbox.client import (
    CUT,
    WorkerCrashed,
    WorkerCut,
    WorkerError,
    WorkerFailed,
    WorkerLied,
    WorkerTimeout,
)
from kernelopt_bot.search.explain import DETAIL_LINES, declined, explain
from kernelopt_bot.targets.target import Target

TARGET = Target("net", "models/net.py", "Net", "get_inputs")


@pytest.mark.parametrize(("kind", "fix"), [
    ("target_import", "importing the file"), ("target_missing", "`entry`, `inputs` and `init`"),
    ("target_constructor", "get_init_inputs"), ("target_inputs", "example inputs"), ("target_forward", "eval mode"),
    ("target_device", ".to(device)"), ("no_graphs", "graph_breaks"), ("non_deterministic", "dropout"),
])
def test_the_models_own_mistakes_are_bad_input(kind: str, fix: str) -> None:
    error = explain(WorkerFailed(kind, "it broke", "a\nb"), TARGET, "the search")
    assert isinstance(error, InputError) and error.exit_code == 2 and error.kind == kind
    assert error.what == "it broke" and fix in error.fix
    assert error.where == "models/net.py:Net\n    a\n    b"


@pytest.mark.parametrize("kind", ["unsupported", "out_of_memory", "compile_failed", "a kind of tomorrow"])
def test_the_machines_limits_are_not_the_models_fault(kind: str) -> None:
    error = explain(WorkerFailed(kind, "it broke"), TARGET, "the search")
    assert isinstance(error, Unavailable) and error.exit_code == 1 and error.fix


def test_a_missing_package_is_told_from_a_broken_import() -> None:
    missing = explain(WorkerFailed("target_import", "the package 'x' is not installed in /p"), TARGET, "the search")
    broken = explain(WorkerFailed("target_import", "RuntimeError: no licence"), TARGET, "the search")
    assert "install it" in missing.fix and "environment.python" in missing.fix
    assert "install" not in broken.fix


def test_only_the_end_of_a_long_trace() -> None:
    error = explain(WorkerFailed("target_forward", "m", "\n".join(map(str, range(100)))), TARGET, "the search")
    lines = error.where.splitlines()
    assert len(lines) == 1 + DETAIL_LINES and lines[-1].strip() == "99"


def test_a_full_disk_is_recognised_in_the_workers_words() -> None:
    error = explain(WorkerFailed("unsupported", "OSError: [Errno 28] No space left on device"), TARGET, "the search")
    assert error.kind == "disk_full" and "free some space" in error.fix and error.exit_code == 1


@pytest.mark.parametrize(("error", "kind", "words"), [
    (WorkerTimeout("capture did not answer within 5 s"), "timeout", "budget.wall_s"),
    (WorkerCrashed("it was ended by SIGSEGV", "one\ntwo"), "crashed", "native code"),
    (WorkerCrashed("it was ended by SIGKILL"), "crashed", "memory runs out"),
    (WorkerCrashed("it ended with code 3"), "crashed", "os._exit"),
    (WorkerCrashed("it used more than 5 bytes of memory and was killed"), "crashed", "smaller example inputs"),
    (WorkerCrashed(CUT), "crashed", "close in the model's code only what it has opened"),
    (WorkerCut(CUT), "cut", "close in the model's code only what it has opened"),
    (WorkerLied("the worker broke the protocol"), "lied", "nothing was adopted"),
])
def test_a_worker_that_ends(error: WorkerError, kind: str, words: str) -> None:
    found = explain(error, TARGET, "the search")
    assert found.kind == kind and words in found.fix and found.where.startswith("models/net.py:Net")
    assert str(error) in found.what


def test_nobody_is_told_to_repair_our_bugs() -> None:
    with pytest.raises(RuntimeError, match="IndexError") as caught:
        explain(WorkerFailed("bug", "IndexError: 3", "trace"), TARGET, "the search")
    assert isinstance(caught.value.__cause__, WorkerFailed)


def test_an_environment_without_torch_is_no_bug() -> None:
    error = explain(WorkerFailed("bug", "ModuleNotFoundError: No module named 'torch'"), TARGET, "the search")
    assert isinstance(error, InputError) and "no torch" in error.what and "environment.python" in error.fix


def test_declined_says_how_it_varies() -> None:
    error = declined(TARGET, "between calls")
    assert error.exit_code == 2 and error.kind == "non_deterministic" and "between calls" in error.what
