"""Which configuration Inductor's autotuner chose for each kernel, made once for all arms of a process.

Inductor times a few configurations of a kernel when it is first called and keeps the fastest. Where two are close,
each compilation may keep another one, and identical code differs: of four equal arms on an H200 the first was 2.3%
faster than the others, whose intervals were far from 1. Neither a gain nor a loss of that kind is a candidate's, so
that the arms of a comparison take what the first of them chose. It is carried over in Inductor's own files, whose names
are hashes of kernel and torch release, and which name the list of configurations they were chosen from: a file of
another list is not used.
"""

from __future__ import annotations

from pathlib import Path

SUFFIX = ".best_config"


class Choices:
    """Files of Inductor's autotuner, by their place in a cache folder."""

    def __init__(self) -> None:
        self._known: dict[Path, bytes] = {}

    def give(self, folder: str) -> None:
        """Put what is known into a cache folder, beside what it holds."""
        for name, content in self._known.items():
            path = Path(folder) / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def take(self, folder: str) -> None:
        """Learn from a cache folder; what was known before stays."""
        for path in sorted(Path(folder).rglob(f"*{SUFFIX}")):
            self._known.setdefault(path.relative_to(folder), path.read_bytes())
