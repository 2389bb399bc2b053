"""What searches learnt, kept for the next one: gains and losses by the structure of the kernels, a file a repository.

Lessons are a brain's words with measured factors and device code of candidates, never a user's source. They are
examples in prompts and nothing else: nobody believes them, and every candidate goes through all gates. Only runs that
may (of the default branch, or by hand) write. A file that is missing or damaged costs its lessons and nothing else.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from kernelopt_bot.agents.brain import Experience, SpotFacts
from kernelopt_bot.user_cache import of_repository

SCHEMA = 1
MOST = 1000
"""Lessons of a repository; the oldest go."""
LONGEST = 16 << 20
"""Bytes of a file that is read."""


@dataclass(frozen=True)
class Lessons:
    """Of one repository. `writes`: whether this run may add to them."""

    path: Path
    writes: bool = False

    @classmethod
    def of(cls, repository: str, *, writes: bool, folder: Path | None = None) -> Lessons:
        """Those of `repository` (`owner/name`, or a folder's path), below the user's cache folder."""
        return cls(of_repository(repository, "lessons", ".jsonl", folder), writes)

    def find(self, spots: Iterable[SpotFacts], most: int) -> list[Experience]:
        """Those about kernels of the same structure, any sizes, the newest last; `most` at most."""
        wanted = {structure(s) for s in spots}
        found = [e for key, e in self._load() if key in wanted]
        return found[-most:] if most else []

    def learn(self, made: Sequence[tuple[str, Experience]]) -> None:
        """Adds (structure, lesson) pairs, each text once. Does nothing unless `writes`. Raises OSError."""
        if not self.writes or not made:
            return
        known = {(key, e.direction, e.lesson): (key, e) for key, e in (*self._load(), *made)}
        lines = [json.dumps({"schema": SCHEMA, "structure": key, "experience": asdict(e)}, sort_keys=True) + "\n"
                 for key, e in list(known.values())[-MOST:]]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        beside.write_text("".join(lines), encoding="utf-8")
        os.replace(beside, self.path)

    def _load(self) -> list[tuple[str, Experience]]:
        names = {f.name for f in fields(Experience)}
        found = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if self.path.stat().st_size > LONGEST:
                return []
            for line in self.path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    data = json.loads(line)
                    given = data["experience"]
                    if data["schema"] == SCHEMA and set(given) == names and isinstance(given["factor"], float):
                        found.append((str(data["structure"]), Experience(**given)))
        return found


def structure(spot: SpotFacts) -> str:
    """Digest of a spot's kernels as syntax trees without comments and sizes, and of its slots' types: equal for the
    same operators on other shapes, as long as the compiler chooses the same form of kernel for both."""
    parts = [json.dumps([(s.type, s.written) for s in spot.slots]), *(_shapeless(step.source) for step in spot.steps)]
    return hashlib.sha256("\n".join(parts).encode(errors="backslashreplace")).hexdigest()[:24]


def _shapeless(source: str) -> str:
    try:
        functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return source
    for node in (n for f in functions for n in ast.walk(f)):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > 1:
            node.value = 0
    return "\n".join(ast.unparse(s) for f in functions for s in f.body)
