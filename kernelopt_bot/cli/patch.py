"""What a run would publish, as a patch that `git apply` takes: all that a fork gets, and a run that only reports."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
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


def edits_patch(output: Path, run: RunResult, root: Path) -> Path | None:
    """`output/kernelopt.patch` of the files below `root` that the results change in place; None, and no file, where
    there are none. Raises Unavailable for a folder that cannot be written, ProcessError."""
    (output / NAME).unlink(missing_ok=True)
    new = {path: content for r in faster(run) for path, content in r.edits.items()}
    text = difference({path: (root / path).read_bytes() for path in new}, new) if new else b""
    if not text:
        return None
    write_whole(output / NAME, text)
    return output / NAME


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
