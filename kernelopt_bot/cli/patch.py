"""What a run would publish, as a patch that `git apply` takes: all that a fork gets, and a run that only reports."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernelopt_bot import process
from kernelopt_bot.publish.edits import edits_of
from kernelopt_bot.publish.files import read_folder
from kernelopt_bot.report.facts import faster
from kernelopt_bot.report.write import write_whole
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.targets.git import TIMEOUT_S, Repository, environment
from kernelopt_bot.targets.wire import reader_of, wire

NAME = "kernelopt.patch"


def write_patch(output: Path, run: RunResult, root: Path, repository: Repository, head: str) -> Path | None:
    """`output/kernelopt.patch` against the commit `head`: the artifacts below `root`, the call sites of `wire`, and the
    edits of Triton kernels.

    None, and no file, where nothing is faster. Raises InputError for files that may not be published, Unavailable for a
    folder that cannot be written, ProcessError.
    """
    (output / NAME).unlink(missing_ok=True)
    adopted = [(r.target, r.artifact) for r in faster(run) if r.artifact]
    if not faster(run):
        return None
    read = reader_of(repository, head)
    new = {**wire(adopted, read).files, **edits_of(run, read, read, lambda path, kernel, text: True).files}
    for _, artifact in adopted:
        new |= read_folder(root, artifact)
    old = {path: text for path in new if (text := read(path)) is not None}
    text = difference(old, new)
    if not text:
        return None
    write_whole(output / NAME, text)
    return output / NAME


def edits_patch(output: Path, run: RunResult, root: Path, note: Callable[[str], None]) -> Path | None:
    """`output/kernelopt.patch` of the files below `root` that the results change in place, against what the search
    read; None, and no file, where there are none. `note` is told what a reader has to know of it. Raises Unavailable
    for a folder that cannot be written, ProcessError."""
    (output / NAME).unlink(missing_ok=True)
    old: dict[str, bytes] = {}
    made: dict[str, list[bytes]] = {}
    for result in faster(run):
        for path, content in result.edits.items():
            before = old.setdefault(path, result.edited[path])
            if before != result.edited[path] or together(before, [*made.get(path, []), content]) is None:
                note(f"the edit for {result.target.name} is not in {NAME}: it does not go together with an earlier one "
                     f"of {path}; optimise it again by itself once that is applied")
                continue
            made.setdefault(path, []).append(content)
    new = {path: whole for path, contents in made.items() if (whole := together(old[path], contents)) is not None}
    for path in new:
        if not (root / path).is_file() or (root / path).read_bytes() != old[path]:
            note(f"{path} has changed since the search read it: {NAME} is for the file as it was")
    text = difference({path: old[path] for path in new}, new) if new else b""
    if not text:
        return None
    write_whole(output / NAME, text)
    return output / NAME


def together(old: bytes, news: Sequence[bytes]) -> bytes | None:
    """`old` with the changes of all of `news`, each a contiguous run of lines; None where two of them meet."""
    lines = old.splitlines(keepends=True)
    end, changes = len(lines) + 1, sorted({_change(lines, new.splitlines(keepends=True)) for new in news}, reverse=True)
    for first, last, content in changes:
        if last > end or first == end:
            return None
        lines[first:last], end = [content], first
    return b"".join(lines)


def _change(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[int, int, bytes]:
    """(first line, line after the last one, what is there instead), from 0."""
    least = min(len(old), len(new))
    head = next((i for i in range(least) if old[i] != new[i]), least)
    tail = next((i for i in range(least - head) if old[-1 - i] != new[-1 - i]), least - head)
    return head, len(old) - tail, b"".join(new[head:len(new) - tail])


def difference(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> bytes:
    """From `old` to `new` files by POSIX path, as git writes it. Raises ProcessError."""
    with tempfile.TemporaryDirectory(prefix="kernelopt-patch-") as scratch:
        for side, files in (("a", old), ("b", new)):
            for path, content in files.items():
                place = Path(scratch) / side / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            (Path(scratch) / side).mkdir(exist_ok=True)
        # The folders' names are the usual prefixes.
        command = ["git", "diff", "--no-index", "--no-prefix", "--binary",
                   "--no-ext-diff", "--no-textconv", "--no-color", "--output=patch", "a", "b"]
        done = process.run(command, timeout=TIMEOUT_S, cwd=Path(scratch), check=False,
                           environment={**environment(), "GIT_CEILING_DIRECTORIES": scratch})
        if done.code not in (0, 1):
            raise process.ProcessFailed(command, done.code, done.stdout, done.stderr, "it failed")
        return (Path(scratch) / "patch").read_bytes()
