"""What launches a Triton kernel, recorded before any search: for `kernelopt check`."""

from __future__ import annotations

import ast

from kernelopt_bot.compiler.plain_triton import Unfit, plain_kernel
from kernelopt_bot.gates.answers import Malformed
from kernelopt_bot.sandbox.client import WorkerError, WorkerFailed
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.triton_calls import ASSUMED_MULTIPROCESSORS
from kernelopt_bot.search.triton_lever import TIMEOUT_S, Work, cases_of, record, usable
from kernelopt_bot.targets.triton_edit import NotEditable, handle
from kernelopt_bot.targets.triton_kernels import TritonTarget, imported, kernels


class DoesNotRun(Exception):
    """The kernel cannot be taken, or what launches it does not work; the words say why."""


def launches_of(session: Session, target: TritonTarget) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its distinct launches in words, and notes. Raises DoesNotRun."""
    try:
        text = (session.root / target.path).read_bytes()
        tree = ast.parse(text)
        if target.entry not in kernels(tree):
            raise Unfit("it is no longer in its file")
        plain = plain_kernel(tree, target.entry, imported(tree))
        with session.model_worker("check", interpret=not session.has_gpu) as worker:
            work = Work(session, target, text, plain, Trials(session.archive, session.budget),
                        worker.call("hello", {}, timeout=TIMEOUT_S))
            answer = record(work, worker)
        gpu = work.versions.get("gpu") or {}
        cases = cases_of(answer, plain, work.arch, int(gpu.get("multiprocessors", ASSUMED_MULTIPROCESSORS)))
        notes = [f"{answer['empty']} launches over no elements are left out"] if answer.get("empty") else []
    except WorkerFailed as e:
        raise DoesNotRun(f"{e.message}\n{e.detail}".strip()) from None
    except (WorkerError, Malformed) as e:
        raise DoesNotRun(str(e)) from None
    except (Unfit, OSError, SyntaxError, ValueError) as e:
        raise DoesNotRun(f"{target.entry} cannot be taken: {e}") from None
    try:
        usable(handle(tree, target.entry), cases)
    except NotEditable as e:
        notes.append(f"a search changes nothing in place: {e}")
    return tuple(f"{c.covered} (grid {', '.join(c.launch.grid)}; {c.count} times)" for c in cases), tuple(notes)
