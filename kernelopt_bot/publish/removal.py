"""Which files go away with an artifact: all of it, if all of it is what a release wrote, and else none.

The wish comes from a job that executed other people's code, so the artifact is read anew, at the commit of the job.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.rest import Rest
from kernelopt_bot.publish.trees import blob, tree_at
from kernelopt_bot.report.write import write_whole
from kernelopt_bot.search.committed import LIMIT_BYTES, LIMIT_FILES, Modified, OtherRelease, read


class Declined(Exception):
    """Nothing is removed; the words say why."""


def removable(rest: Rest, commit: str, artifact: str) -> tuple[str, ...]:
    """The files of the artifact folder at `commit`, as paths in the repository.

    An earlier release's artifact is known by its runtime alone, and then only files with the names of an artifact's go.
    Raises Declined where somebody edited it or put something beside it, UserError where it cannot be read.
    """
    entries = tree_at(rest, commit, artifact)
    if not entries:
        raise Declined("it is not there")
    if len(entries) > LIMIT_FILES:
        raise Declined(f"it has over {LIMIT_FILES} files")
    for entry in entries.values():
        if entry["mode"] != "100644" or int(entry.get("size", 0)) > LIMIT_BYTES:
            raise Declined("it holds something that no release wrote")
    with tempfile.TemporaryDirectory(prefix="kernelopt-removal-") as scratch:
        folder, copy = Path(scratch) / "artifact", Path(scratch) / "copy"
        copy.mkdir()
        for name, entry in entries.items():
            write_whole(folder / name, blob(rest, str(entry["sha"]), LIMIT_BYTES))
        try:
            read(folder, copy)
        except OtherRelease:
            pass
        except (Modified, InputError) as e:
            raise Declined(f"it was edited ({' '.join(str(e).split())[:300]})") from None
    return tuple(sorted(f"{artifact}/{name}" for name in entries))
