"""Which files go away with an artifact: all of it, if all of it is what a release wrote, and else none.

The wish comes from a job that executed other people's code, so the artifact is read anew, at the commit of the job.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from kernelopt_bot.compiler._runtime import kernel_hash
from kernelopt_bot.compiler.example import name_of_test
from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.rest import Rest
from kernelopt_bot.publish.trees import blob, tree_at
from kernelopt_bot.report import plain_json
from kernelopt_bot.report.write import write_whole
from kernelopt_bot.search.committed import FIXED, LIMIT_BYTES, LIMIT_FILES, Modified, OtherRelease, read


class Declined(Exception):
    """Nothing is removed; the words say why."""


def removable(rest: Rest, commit: str, artifact: str, earlier: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The files of the artifact folder at `commit`, as paths in the repository. `earlier`: as `committed.read` has it.

    An earlier release's artifact is known by its runtime; its other files by what its manifest says of them.
    Raises Declined where somebody edited it or put something beside it, UserError where it cannot be read.
    """
    entries = tree_at(rest, commit, artifact)
    if not entries:
        raise Declined("it is not there")
    if len(entries) > LIMIT_FILES:
        raise Declined(f"it has over {LIMIT_FILES} files")
    for name, entry in entries.items():
        # Of git's own making no name leads out of a folder; this one writes what it reads.
        if ".." in name.split("/") or entry["mode"] != "100644" or int(entry.get("size", 0)) > LIMIT_BYTES:
            raise Declined("it holds something that no release wrote")
    with tempfile.TemporaryDirectory(prefix="kernelopt-removal-") as scratch:
        folder, copy = Path(scratch) / "artifact", Path(scratch) / "copy"
        copy.mkdir()
        for name, entry in entries.items():
            write_whole(folder / name, blob(rest, str(entry["sha"]), LIMIT_BYTES))
        try:
            read(folder, copy, earlier)
        except OtherRelease:
            _as_its_manifest_says(folder, artifact, entries)
        except (Modified, InputError) as e:
            raise Declined(f"it was edited ({' '.join(str(e).split())[:300]})") from None
    return tuple(sorted(f"{artifact}/{name}" for name in entries))


def _as_its_manifest_says(folder: Path, artifact: str, names: Collection[str]) -> None:
    """Raises Declined for a file that the manifest does not name, and for a kernel with another hash than there."""
    try:
        runs = plain_json.loads((folder / "manifest.json").read_bytes())["runs"]
        hashes = {str(run["kernel"]): str(run["source_hash"]) for run in runs}
    except (KeyError, TypeError, ValueError):
        raise Declined("its manifest cannot be read") from None
    own = {*FIXED, *hashes, name_of_test(artifact.rpartition("/")[2])}
    if more := sorted(set(names) - own):
        raise Declined(f"it holds a file that its manifest does not name ({more[0][:200]})")
    for name, wanted in hashes.items():
        if name in names and kernel_hash((folder / name).read_text(encoding="utf-8", errors="replace")) != wanted:
            raise Declined(f"it was edited ({name[:200]})")
