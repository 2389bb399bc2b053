"""The edits of Triton kernels that a publication makes, each proved against the file that it is meant for.

Whoever publishes reads the file anew at the job's commit. What comes from a job that executed other people's code is
only let through where this release would have written exactly that (`targets.triton_edit_check`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelopt_bot.config import Config, Traced
from kernelopt_bot.config_sources import listed
from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.call_sites import reader_at
from kernelopt_bot.publish.files import MAX_FILE_BYTES, check_path
from kernelopt_bot.publish.reading import head_of
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.trees import PLAIN
from kernelopt_bot.report.facts import faster
from kernelopt_bot.search.result import RunResult, TargetResult
from kernelopt_bot.targets.git import Repository
from kernelopt_bot.targets.triton_edit import NotEditable
from kernelopt_bot.targets.triton_edit_check import check_edit, wanted
from kernelopt_bot.targets.triton_kernels import TritonTarget
from kernelopt_bot.targets.wire import reader_of

Read = Callable[[str], bytes | None]
"""A plain file of a commit that is not executable; None where there is none."""
MOST_LINES = 200
"""Of a patch that is shown."""


@dataclass(frozen=True)
class Edit:
    target: str
    path: str
    before: bytes
    """The file at the job's commit."""
    after: bytes

    @property
    def patch(self) -> str:
        """For people; `kernelopt.patch` is the one to apply."""
        old, new = (re.split(r"(?<=\n)", text.decode(errors="replace")) for text in (self.before, self.after))
        lines = [line.rstrip("\r\n") for line in difflib.unified_diff(old, new, f"a/{self.path}", f"b/{self.path}")]
        return "\n".join(lines[:MOST_LINES] + ["..."] * (len(lines) > MOST_LINES))


@dataclass(frozen=True)
class Edits:
    made: tuple[Edit, ...] = ()
    """At most one of a file."""
    left: tuple[tuple[str, str], ...] = ()
    """(target, why its edit is not published)."""

    @property
    def files(self) -> Mapping[str, bytes]:
        return {e.path: e.after for e in self.made}

    @property
    def before(self) -> Mapping[str, bytes]:
        return {e.path: e.before for e in self.made}

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(e.target for e in self.made)


def edits_of(run: RunResult, read: Read, now: Read, permitted: Callable[[str, str, bytes], bool],
             artifact_root: str = "") -> Edits:
    """What is published of the run's edits. `read`: the job's commit; `now`: the branch that it goes to, as it is;
    `permitted(path, kernel, text)`: whether the repository wants that kernel to be optimised.

    Raises InputError for what this release's search would not have made of that file.
    """
    made: dict[str, Edit] = {}
    left: list[tuple[str, str]] = []
    for r in sorted((r for r in faster(run) if isinstance(r.target, TritonTarget)), key=_best_first):
        target, path = r.target.name, r.target.path
        check_path(path)
        if set(r.edits) != {path} or not path.endswith(".py") or path.startswith(f"{artifact_root or '.'}/"):
            raise _refused("it changes another file than the kernel's own", target)
        if len(r.edits[path]) > MAX_FILE_BYTES:
            raise _refused("the file is larger than 1 MiB", path)
        before = read(path)
        if before is None:
            left.append((target, f"{path} is no plain file at this commit, or is executable: its edit is in "
                                 "kernelopt.patch only"))
            continue
        if not permitted(path, r.target.entry, before):
            raise _refused("the repository lists no such kernel, and no marker names it", f"{path}:{r.target.entry}")
        try:
            check_edit(before, r.edits[path], r.target.entry)
        except NotEditable as e:
            raise _refused(str(e), path) from None
        if path in made:
            left.append((target, f"another kernel of {path} gains more and goes first: a later run takes this one up"))
        elif now(path) != before:
            left.append((target, f"stale: {path} has changed on the branch since, and is not written over: the next "
                                 "run looks at it as it is now"))
        else:
            made[path] = Edit(target, path, before, r.edits[path])
    return Edits(tuple(made.values()), tuple(left))


def _best_first(r: TargetResult) -> tuple[float, str]:
    return -(r.headline.speedup if r.headline is not None else 0.0), r.target.name


def _refused(what: str, where: str) -> InputError:
    return InputError(f"the edit of a Triton kernel is refused: {what}", where=repr(where)[:300],
                      fix="run execute and publish with one release of KernelOPT, and hand its result on unchanged; "
                          "nothing was published")


def edits_here(run: RunResult, repository: Repository, commit: str, branch: str, config: Config) -> Edits:
    """For a repository on this machine: `branch` may be missing in it. `config`: with the kernels of `commit`.

    Raises InputError."""
    if not _any(run):
        return Edits()
    read = reader_of(repository, commit)
    try:
        now = reader_of(repository, repository.commit(f"refs/heads/{branch}"))
    except InputError:
        now = read
    names = {(k.path, k.kernel) for k in config.kernels}
    return edits_of(run, read, now, lambda path, kernel, text: (path, kernel) in names or wanted(text, kernel),
                    config.artifact.root)


def edits_there(run: RunResult, rest: Rest, commit: str, branch: str, config: Config) -> Edits:
    """For a repository on GitHub; which kernels `commit` lists is read there. `config` is the policy. Raises
    UserError."""
    if not _any(run):
        return Edits()
    known: dict[str, dict[str, Json]] = {}
    read = reader_at(rest, commit, PLAIN[:1], known)
    own = listed(Traced(config), reader_at(rest, commit, PLAIN, known)).config.kernels
    names = {(k.path, k.kernel) for k in own}
    head = head_of(rest, branch)
    # A branch that is gone or cannot be read is the publication's own affair.
    now = reader_at(rest, head, PLAIN[:1], known) if head and head != commit else read
    return edits_of(run, read, now, lambda path, kernel, text: (path, kernel) in names or wanted(text, kernel),
                    config.artifact.root)


def _any(run: RunResult) -> bool:
    return any(isinstance(r.target, TritonTarget) for r in faster(run))
