"""A model worker's failure in words that the model's author can act on."""

from __future__ import annotations

import errno
import re

from kernelopt_bot.errors import InputError, Unavailable, UserError
from kernelopt_bot.sandbox.client import CUT, WorkerCrashed, WorkerCut, WorkerError, WorkerFailed, WorkerTimeout
from kernelopt_bot.targets.target import Target

_FIXES = {
    "target_import": "importing the file has to work on its own: correct what it does when it is imported",
    "target_missing": "check `entry`, `inputs` and `init` of this target",
    "target_constructor": "check what `init` (or get_init_inputs) returns",
    "target_inputs": "check the function that makes the example inputs: it returns the list of forward's arguments",
    "target_forward": "call the model on its example inputs yourself: it has to run in eval mode without gradients",
    "target_device": "make the model and its inputs movable with `.to(device)`",
    "no_graphs": "torch.compile captured nothing here: look at the graph breaks with TORCH_LOGS=graph_breaks",
    "unsupported": "the compiler's own code stays; nothing has to be done",
    "out_of_memory": "use smaller example inputs or a device with more memory",
    "non_deterministic": "make the model deterministic in eval mode (no random numbers, no dropout in forward)",
    "compile_failed": "see whether torch.compile handles this model on its own",
}
_MISSING_PACKAGE = ("install it there, or name the interpreter that has it as `environment.python` in "
                    ".kernelopt.yml")
_EXIT_INPUT = frozenset({"target_import", "target_missing", "target_constructor", "target_inputs", "target_forward",
                         "target_device", "no_graphs", "non_deterministic"})
_CUT_FIX = "close in the model's code only what it has opened: no os.closerange over all descriptors, no daemonising"
DETAIL_LINES = 12
_ABSENT = re.compile(r"ModuleNotFoundError: No module named '(torch|triton)[.']")
"""What a worker itself imports; every other package is the model's, and said by `load`."""
_DISK_FULL = f"[Errno {errno.ENOSPC}]"


def explain(error: WorkerError, target: Target, doing: str) -> UserError:
    """What happened, where, and what to do. A `bug` of the worker is raised as it is, since nobody can act on it."""
    where = f"{target.path}:{target.entry}"
    if isinstance(error, WorkerFailed):
        if error.kind == "bug":
            if missing := _ABSENT.search(error.message + error.detail):
                return InputError(f"the interpreter of the user's environment has no {missing[1]}", where=where,
                                  fix=_MISSING_PACKAGE, kind="target_import")
            raise RuntimeError(f"the worker failed in {doing}: {error.message}\n{error.detail}") from error
        if _DISK_FULL in error.message + error.detail:
            return Unavailable("the disk is full: a worker could not write what it compiled", where=where,
                               fix="free some space where the output folder is, then run again", kind="disk_full")
        if error.kind == "declined":
            return InputError(error.message, where=where, fix=error.detail or _FIXES["unsupported"], kind="unsupported")
        detail = "\n    ".join(error.detail.strip().splitlines()[-DETAIL_LINES:])
        kind = InputError if error.kind in _EXIT_INPUT else Unavailable
        fix = _FIXES.get(error.kind, "run `kernelopt doctor`")
        if error.kind == "target_import" and "is not installed" in error.message:
            fix = _MISSING_PACKAGE
        return kind(error.message, where=where + (f"\n    {detail}" if detail else ""), fix=fix, kind=error.kind)
    if isinstance(error, WorkerTimeout):
        return Unavailable(f"{doing} took too long: {error}", where=where, kind="timeout",
                           fix="use smaller example inputs, or a larger `budget.wall_s`")
    if isinstance(error, WorkerCrashed):
        tail = "\n    ".join(error.stderr_tail.strip().splitlines()[-DETAIL_LINES:])
        return Unavailable(f"the worker ended during {doing}: {error.how}",
                           where=where + (f"\n    {tail}" if tail else ""),
                           fix=_after(error.how), kind="crashed")
    if isinstance(error, WorkerCut):
        return InputError(f"{doing} ended: {CUT}", where=where, fix=_CUT_FIX, kind="cut")
    return Unavailable(f"{doing}: {error}", where=where, kind="lied",
                       fix="the worker's answers cannot be trusted; nothing was adopted")


def _after(how: str) -> str:
    """What to do about a process that ended."""
    if how == CUT:
        return _CUT_FIX
    if "ended with code" in how:
        return "the model's code, or a library it loads, ends its own process (os._exit): it has to return or to raise"
    if "more than" in how:
        return "use smaller example inputs or a smaller model, or a machine with more of it"
    if "SIGKILL" in how:
        return "the system ended it, which it does where memory runs out: use a smaller model or a machine with more"
    return "the model's native code (its extensions, or a library that it loads) is broken: run the model by itself"


def declined(target: Target, varies: str) -> InputError:
    """A model whose output is not a function of its inputs: no gate can tell a wrong answer from another draw."""
    return InputError(
        f"the model is not deterministic: for equal inputs its output varies {varies}",
        where=f"{target.path}:{target.entry}", fix=_FIXES["non_deterministic"], kind="non_deterministic")
