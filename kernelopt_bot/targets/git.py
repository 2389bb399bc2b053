"""Reading a git repository that may be hostile: plumbing only, in a clean environment, never its work tree.

git is started through gitpython, but as `env -i NAME=value... git ...`: gitpython itself would hand the whole
environment of this process on, tokens and GIT_* redirections included. Hooks, file system monitors, filters,
attributes, lazy fetches, replacement objects and the user's and the system's configuration are all off, so that nothing
in the repository can start a program.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from kernelopt_bot.config import nearest
from kernelopt_bot.errors import InputError, Unavailable

TIMEOUT_S = 300.0
"""Longest that one git command may take, in seconds."""

BATCH_BYTES = 64 * 1024 * 1024
"""Blob bytes asked for at a time."""

_CONFIGURATION = {
    "safe.bareRepository": "explicit", "core.fsmonitor": "false", "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull, "core.excludesFile": os.devnull, "core.pager": "cat", "core.sshCommand": "false",
    "core.editor": "false", "core.askPass": "false", "credential.helper": "", "protocol.allow": "never",
    "gc.auto": "0", "maintenance.auto": "false", "commit.gpgSign": "false",
}


def environment() -> dict[str, str]:
    """The whole environment of a git command of ours."""
    result = {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "LANG": "C", "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1", "GIT_CONFIG_COUNT": str(len(_CONFIGURATION)),
    }
    for index, (key, value) in enumerate(_CONFIGURATION.items()):
        result |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return result


def git(folder: Path, *arguments: str, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None
        ) -> tuple[int, bytes, str]:
    """Exit code, standard output (empty if `stdout` took it) and standard error of one git command in `folder`.

    Raises Unavailable: git is not installed, or took longer than `TIMEOUT_S`.
    """
    missing = Unavailable("git is not installed", where="PATH", fix="install git 2.38 or newer")
    try:
        from git import Git
    except ImportError as error:
        # gitpython runs git when it is imported, and says so in an ImportError when there is none.
        raise missing from error
    pairs = [f"{key}={value}" for key, value in environment().items()]
    # gitpython's overloads do not know this combination: it gives (exit code, bytes or the stream, str or bytes).
    answer: Any = Git(str(folder)).execute(
        ["env", "-i", *pairs, "git", "--no-pager", *arguments], istream=stdin, output_stream=stdout,
        with_extended_output=True, with_exceptions=False, stdout_as_string=False, strip_newline_in_stdout=False,
        kill_after_timeout=TIMEOUT_S)
    code, output, errors = int(answer[0]), answer[1], answer[2]
    if code == 127:
        raise missing
    if code < 0:
        raise Unavailable(f"git {arguments[0]} was ended by signal {-code} or took longer than {TIMEOUT_S:g} s",
                          where=str(folder), fix="try again; `git fsck` tells whether the repository is damaged")
    text = errors.decode(errors="replace") if isinstance(errors, bytes) else str(errors)
    return code, output if isinstance(output, bytes) else b"", text


@dataclass(frozen=True)
class Entry:
    """A file of a commit."""

    path: str
    mode: str
    """`100644`, `100755`, `120000` (symbolic link) or `160000` (submodule)."""
    oid: str
    size: int
    """Bytes; 0 for a submodule."""


@dataclass(frozen=True)
class Repository:
    root: Path
    """Top of the work tree, absolute."""

    def run(self, *arguments: str) -> bytes:
        """Standard output of a git command that must succeed. Raises InputError with git's own words."""
        code, output, errors = git(self.root, *arguments)
        if code:
            raise _damaged(self.root, arguments[0], errors)
        return output

    @property
    def shallow(self) -> bool:
        return self.run("rev-parse", "--is-shallow-repository").strip() == b"true"

    def commit(self, revision: str) -> str:
        """Full hash of the commit that `revision` names.

        Raises InputError: no commit yet; a shallow clone that lacks it; unknown, with the nearest branch or tag.
        """
        if not revision or revision.startswith("-") or not revision.isprintable():
            raise InputError(f"{revision!r} is not a revision", where=str(self.root),
                             fix="give a branch, a tag or a hash")
        code, output, _ = git(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if code == 0:
            return output.decode().strip()
        if git(self.root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")[0]:
            raise InputError("the repository has no commit yet", where=str(self.root), fix="commit the model first")
        if self.shallow:
            raise InputError(
                f"the commit {revision} is not in this shallow clone", where=str(self.root),
                fix="set `fetch-depth: 0` at actions/checkout, or run `git fetch --unshallow`")
        hexadecimal = len(revision) >= 7 and all(c in "0123456789abcdef" for c in revision)
        names = self.run("for-each-ref", "--format=%(refname:short)").decode(errors="replace").split()
        near = nearest(revision, names)
        raise InputError(
            f"the repository has no revision {revision}", where=str(self.root),
            fix=(f"fetch it: git fetch origin {revision}" if hexadecimal
                 else f"did you mean {near}?" if near else "`git branch -a` lists what there is"))

    def merge_base(self, base: str, head: str) -> str:
        """The best common ancestor of two commits; '' if there is none at hand (a shallow clone can lack it)."""
        code, output, _ = git(self.root, "merge-base", base, head)
        return output.decode().strip() if code == 0 else ""

    def merged(self, ours: str, theirs: str) -> str:
        """The hash of a new commit, on no branch, that merges two; '' where they conflict. Raises InputError."""
        code, output, errors = git(self.root, "merge-tree", "--write-tree", "--no-messages", ours, theirs)
        if code == 1:
            return ""
        if code:
            raise _damaged(self.root, "merge-tree", errors)
        made = self.run("-c", "user.name=KernelOPT bot", "-c", "user.email=kernelopt@bot.invalid", "commit-tree",
                        output.decode().strip(), "-p", ours, "-p", theirs, "-m", "merged to be verified")
        return made.decode().strip()

    def changed(self, base: str, head: str) -> tuple[str, ...]:
        """Sorted POSIX paths that differ between two commits; a rename counts as both its paths."""
        output = self.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv",
                          base, head)
        return tuple(sorted(_text(name) for name in output.split(b"\0") if name))

    def entries(self, commit: str) -> tuple[Entry, ...]:
        """All files of a commit, in git's order."""
        result = []
        for record in self.run("ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0"):
            if record:
                head, _, path = record.partition(b"\t")
                mode, _, oid, size = head.decode().split()
                result.append(Entry(_text(path), mode, oid, 0 if size == "-" else int(size)))
        return tuple(result)

    def blobs(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Content of each entry that is not a submodule, in order. Raises InputError where an object is missing."""
        batch: list[Entry] = []
        size = 0
        for entry in entries:
            if entry.mode == "160000":
                continue
            if batch and size + entry.size > BATCH_BYTES:
                yield from self._batch(batch)
                batch, size = [], 0
            batch.append(entry)
            size += entry.size
        if batch:
            yield from self._batch(batch)

    def _batch(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, bytes]]:
        with _scratch() as wanted, _scratch() as found:
            wanted.write("".join(f"{entry.oid}\n" for entry in entries).encode())
            wanted.seek(0)
            code, _, errors = git(self.root, "cat-file", "--batch", stdin=wanted, stdout=found)
            if code:
                raise _damaged(self.root, "cat-file", errors)
            found.seek(0)
            for entry in entries:
                header = found.readline().split()
                if len(header) != 3:
                    raise _partial(self.root)
                yield entry, found.read(int(header[2]))
                found.read(1)


def open_repository(folder: Path) -> Repository:
    """The repository whose work tree holds `folder`. Raises InputError: none, bare, or owned by somebody else."""
    if not folder.is_dir():
        raise InputError("there is no such folder", where=str(folder), fix="give the folder of a git clone")
    code, output, errors = git(folder, "rev-parse", "--show-toplevel")
    if code == 0:
        return Repository(Path(os.fsdecode(output.removesuffix(b"\n"))))
    if "dubious ownership" in errors:
        raise InputError("the repository belongs to another user", where=str(folder),
                         fix="run as the user who made the clone, or change its owner")
    if "bare repository" in errors or "must be run in a work tree" in errors:
        raise InputError("this is a bare repository", where=str(folder), fix="give the folder of a clone with files")
    if "not a git repository" in errors:
        raise InputError("this is not a git repository", where=str(folder),
                         fix="run in a clone, or use `kernelopt optimize PATH`, which needs no git")
    raise _damaged(folder, "rev-parse", errors)


def shown(path: str) -> str:
    """A path as text for people: what is not UTF-8 is escaped, so that it can be written anywhere."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _scratch() -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile())


def _text(path: bytes) -> str:
    return path.decode(errors="surrogateescape")


def _partial(folder: Path) -> InputError:
    return InputError("this is a partial clone: some of its files were never fetched", where=str(folder),
                      fix="set no `filter:` at actions/checkout, or run `git fetch --refetch --no-filter`")


def _damaged(folder: Path, command: str, errors: str) -> InputError:
    if "lazy fetching" in errors or "promisor" in errors:
        return _partial(folder)
    words = next((line for line in errors.splitlines() if line.strip()), "no reason given")
    return InputError(f"git {command} failed: {words.removeprefix('fatal: ')}", where=str(folder),
                      fix="`git fsck` tells whether the repository is damaged")
