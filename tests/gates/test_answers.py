import pytest

from kernelopt_bot.errors import KerneloptError
from kernelopt_bot.gates.answers import Malformed, failure, judged, need, number
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import WorkerCrashed, WorkerFailed, WorkerLied, WorkerTimeout


@pytest.mark.parametrize(("error", "status", "innocent"), [
    (WorkerFailed("compile_failed", "ptxas says no"), Status.FAIL, Status.NOT_MEASURED),
    (WorkerFailed("runtime_failed", "illegal address"), Status.FAIL, Status.NOT_MEASURED),
    (WorkerFailed("out_of_memory", "no room"), Status.NOT_MEASURED, Status.NOT_MEASURED),
    (WorkerFailed("unsupported", "scan"), Status.NOT_MEASURED, Status.NOT_MEASURED),
    (WorkerFailed("bug", "KeyError"), Status.NOT_MEASURED, Status.NOT_MEASURED),
    (WorkerCrashed("it was ended by SIGSEGV"), Status.FAIL, Status.NOT_MEASURED),
    (WorkerCrashed("it ended with code 134"), Status.FAIL, Status.NOT_MEASURED),
    (WorkerCrashed("it was ended by SIGKILL"), Status.NOT_MEASURED, Status.NOT_MEASURED),
    (WorkerCrashed("it used more than 5 bytes of memory and was killed"), Status.NOT_MEASURED, Status.NOT_MEASURED),
    (WorkerTimeout("no answer within 60 s"), Status.FAIL, Status.NOT_MEASURED),
    (WorkerLied("another question"), Status.FAIL, Status.FAIL),
    (Malformed("no families"), Status.NOT_MEASURED, Status.NOT_MEASURED),
])
def test_what_a_worker_does_instead_of_answering(
    error: KerneloptError, status: Status, innocent: Status
) -> None:
    assert failure("correctness", error).status is status
    verdict = failure("correctness", error, blame=False)
    assert verdict.status is innocent
    assert verdict.reason
    assert not verdict.lets_on


def test_judged_turns_only_worker_errors_into_verdicts() -> None:
    def crash() -> Verdict:
        raise WorkerCrashed("it was ended by SIGSEGV")

    def bug() -> Verdict:
        raise KeyError("ours")

    assert judged("model", crash).status is Status.FAIL
    with pytest.raises(KeyError):
        judged("model", bug)


def test_fields_of_answers() -> None:
    assert need({"a": 1}, "a", int) == 1
    assert number({"a": None}, "a", 3.0) == 3.0
    bad: list[object] = [{}, {"a": "1"}, None, []]
    for answer in bad:
        with pytest.raises(Malformed):
            need(answer, "a", int)
    for value in ("1", True, [1]):
        with pytest.raises(Malformed):
            number({"a": value}, "a")
