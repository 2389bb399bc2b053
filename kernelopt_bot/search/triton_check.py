"""What launches a Triton kernel, recorded before any search: for `kernelopt check`."""

from __future__ import annotations

from kernelopt_bot.search.session import Session
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.triton_lever import FAULTS, TIMEOUT_S, cases_of, opened, record, refusal, usable
from kernelopt_bot.targets.triton_edit import NotEditable, handle
from kernelopt_bot.targets.triton_kernels import TritonTarget


class DoesNotRun(Exception):
    """The kernel cannot be taken, or what launches it does not work; the words say why."""


def launches_of(session: Session, target: TritonTarget) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its distinct launches in words, and notes. Raises DoesNotRun."""
    try:
        work, tree = opened(session, target, Trials(session.archive, session.budget))
        with session.model_worker("check", interpret=not session.has_gpu) as worker:
            work.versions = worker.call("hello", {}, timeout=TIMEOUT_S)
            answer = record(work, worker)
        cases = cases_of(answer, work.plain, work.arch, work.multiprocessors)
        notes = [f"{answer['empty']} launches over no elements are left out"] if answer.get("empty") else []
    except FAULTS as e:
        raise DoesNotRun(refusal(target, e)[0]) from None
    try:
        usable(handle(tree, target.entry), cases)
    except NotEditable as e:
        notes.append(f"a search changes nothing in place: {e}")
    return tuple(f"{c.covered} (grid {', '.join(c.launch.grid)}; {c.count} times)" for c in cases), tuple(notes)
