"""What outlives a search, so that a later one starts there: outcomes (what was adopted for which structure on which
device), and lessons (what agents learnt of kernels of a structure, by gains and by losses).

One SQLite file a repository in the user's cache folder. Only runs that may (of the default branch, or by hand) write;
of outcomes, only what gate 4 and the confirmation passed. Nothing in it is believed: a remembered candidate is one more
idea and goes through every gate again; what a technique gained before only orders ideas; a lesson is an example in
prompts: a brain's words with a measured factor and a candidate's device code, never a user's source. A file that is
missing, locked, damaged or of another release costs a note and nothing else.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from kernelopt_bot.agents.brain import Bound, Experience
from kernelopt_bot.compiler.program import Graph, Kernel
from kernelopt_bot.contract.candidate import KernelCandidate, Lever, Plan
from kernelopt_bot.search.spots import Spot
from kernelopt_bot.user_cache import cache_folder

T = TypeVar("T")
SCHEMA = 2
BEFORE_LESSONS = 1
"""The format without the table of lessons. Its outcomes are read as they are, and a run that writes adds the table."""
WAIT_S = 2.0
"""Longest wait for another process's lock."""
MOST_ROWS = 20_000
MOST_REMEMBERED = 32
"""Candidates that are tried again for one run of steps."""
MOST_LESSONS = 1000
"""Lessons of a repository; the oldest go."""
LONGEST_LESSON = 4500
"""Characters, with its direction: what a brain may answer."""
LONGEST = 1 << 20
"""Bytes of a text or a row. A candidate's source has 256 KiB at most."""
STEPS, MOST_STEPS = 10_000, 5_000
"""SQLite's own steps between two looks at their number, and how many looks until it is stopped (some seconds): a table
of the file may be a view without end."""
_LEVERS: Mapping[str, Lever] = {"kernel": "kernel", "region": "region"}
_TABLES = (
    """CREATE TABLE IF NOT EXISTS outcomes (
    run_hash TEXT, fingerprint TEXT, device TEXT, torch TEXT, triton TEXT, lever TEXT, technique TEXT, gain REAL,
    id TEXT, source TEXT, plan TEXT, at REAL, PRIMARY KEY (run_hash, device, torch, triton, id))""",
    """CREATE TABLE IF NOT EXISTS lessons (
    fingerprint TEXT, direction TEXT, lesson TEXT, factor REAL, kept INTEGER, bound TEXT, source TEXT,
    PRIMARY KEY (fingerprint, direction, lesson))""")


@dataclass(frozen=True)
class Environment:
    """Where an outcome holds. `device` is the GPU's name."""

    device: str
    torch: str
    triton: str

    @classmethod
    def of(cls, environment: Mapping[str, Any]) -> Environment:
        """From the `environment` of an artifact's manifest."""
        return cls(str(environment["device"]), str(environment["torch"]), str(environment["triton"]))


@dataclass(frozen=True)
class Memory:
    """Of one repository. `writes`: whether this run may add to it."""

    path: Path
    writes: bool
    note: Callable[[str], None]
    """Told why the memory could not be used."""

    @classmethod
    def of(cls, repository: str, *, writes: bool, note: Callable[[str], None], folder: Path | None = None) -> Memory:
        """The memory of `repository` (`owner/name`, or a folder's path), below the user's cache folder."""
        name = f"{hashlib.sha256(repository.encode()).hexdigest()[:24]}.sqlite"
        return cls((folder or cache_folder() / "memory") / name, writes, note)

    def candidates(self, spot: Spot, where: Environment) -> list[KernelCandidate]:
        """What was adopted for exactly this run in this environment, largest gain first."""
        rows = self._read(
            "SELECT id, source, plan, technique, lever FROM outcomes WHERE run_hash = ? AND device = ? AND torch = ? "
            "AND triton = ? ORDER BY gain DESC LIMIT ?", (spot.run_hash, *dataclasses.astuple(where), MOST_REMEMBERED))
        found = []
        for identity, source, plan, technique, lever in rows:
            if not all(isinstance(text, str) for text in (identity, source, technique)):
                continue
            with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):  # another release's plan
                found.append(KernelCandidate(
                    identity, spot.run_hash, spot.graph, spot.steps, source, Plan.from_json(json.loads(plan)),
                    technique, rationale="verified before in this repository", lever=_LEVERS[lever]))
        return found

    def gains(self, known: str, where: Environment) -> dict[str, float]:
        """Technique -> mean speedup of the steps of the structure `known` on this device, any sizes and versions."""
        rows = self._read("SELECT technique, AVG(gain) FROM outcomes WHERE fingerprint = ? AND device = ? GROUP BY "
                          "technique", (known, where.device))
        return {str(technique): float(gain) for technique, gain in rows if isinstance(gain, float)}

    def guided(self, spot: Spot, where: Environment) -> Spot:
        """The spot with what is remembered first: candidates, then the ideas of techniques that helped before."""
        known = self.candidates(spot, where)
        gains = self.gains(structure(spot), where)
        if not known and not gains:
            return spot

        def ideas(answers: Sequence[Mapping[str, Any]]) -> list[KernelCandidate]:
            fresh = sorted(spot.ideas(answers), key=lambda c: -gains.get(c.technique, 0.0))
            return list({c.id: c for c in (*known, *fresh)}.values())

        return dataclasses.replace(spot, ideas=ideas)

    def record(self, graph: Graph, candidate: KernelCandidate, gain: float, where: Environment) -> None:
        """Remember what the confirmation passed; `gain` is the speedup of its steps. Does nothing unless `writes`."""
        if not self.writes:
            return
        own = [s for s in graph.steps if s.index in candidate.steps]
        vendor = next((s.name for s in own if s.kind == "vendor"), "")
        known = fingerprint([graph.kernels[s.name] for s in own if s.name in graph.kernels], vendor)
        row = (candidate.run_hash, known, *dataclasses.astuple(where), candidate.lever, candidate.technique, gain,
               candidate.id, candidate.source, json.dumps(candidate.plan.to_json()), time.time())

        def add(connection: sqlite3.Connection) -> None:
            connection.execute(f"INSERT OR REPLACE INTO outcomes VALUES ({', '.join('?' * len(row))})", row)
            connection.execute("DELETE FROM outcomes WHERE rowid NOT IN (SELECT rowid FROM outcomes ORDER BY at DESC "
                               "LIMIT ?)", (MOST_ROWS,))

        self._with(add, None)

    def lessons(self, structures: Iterable[str], most: int) -> list[Experience]:
        """Those about kernels of these structures, the newest last; `most` at most."""
        wanted = sorted(set(structures))

        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            if connection.execute("PRAGMA user_version").fetchone() == (BEFORE_LESSONS,):
                return []
            return connection.execute(
                "SELECT lesson, direction, factor, kept, bound, source FROM lessons WHERE fingerprint IN "
                f"({', '.join('?' * len(wanted))}) ORDER BY rowid DESC LIMIT ?", (*wanted, most)).fetchall()

        if not wanted or not most or not self.path.is_file():
            return []
        nothing: list[tuple[Any, ...]] = []
        return [e for row in reversed(self._with(read, nothing)) if (e := _experience(row)) is not None]

    def learn(self, made: Sequence[tuple[str, Experience]]) -> None:
        """Remember (structure, lesson) pairs, each text once, with its last figures. Does nothing unless `writes`."""
        if not self.writes or not made:
            return
        rows = [(key, _text(e.direction), _text(e.lesson), e.factor, e.kept, e.bound, _text(e.source))
                for key, e in made]

        def add(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO lessons VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            connection.execute("DELETE FROM lessons WHERE rowid NOT IN (SELECT rowid FROM lessons ORDER BY rowid DESC "
                               "LIMIT ?)", (MOST_LESSONS,))

        self._with(add, None)

    def _read(self, query: str, values: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        if not self.path.is_file():
            return []
        return self._with(lambda connection: connection.execute(query, values).fetchall(), [])

    def _with(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """What `work` gives in one transaction; `otherwise`, with a note, where the file cannot be used."""
        try:
            if self.writes:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = "rwc" if self.writes else "ro"
            with contextlib.closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode={mode}", uri=True,
                                                    timeout=WAIT_S)) as connection, connection:
                _bound(connection)
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version not in (BEFORE_LESSONS, SCHEMA) and not (self.writes and version == 0):
                    raise sqlite3.DatabaseError(f"its format is {version}")
                if self.writes and version != SCHEMA:
                    for table in _TABLES:
                        connection.execute(table)
                    connection.execute(f"PRAGMA user_version = {SCHEMA}")
                return work(connection)
        except (sqlite3.Error, OSError) as e:
            self.note(f"the memory of earlier searches is not used: {e}; if it stays so, delete {self.path.name} in "
                      "the cache folder: it is made anew")
            return otherwise


def _bound(connection: sqlite3.Connection) -> None:
    """Whatever the file holds, it costs little: no long text, no work without end, no trigger or view. Raises
    sqlite3.Error."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    left = iter(range(MOST_STEPS))
    connection.set_progress_handler(lambda: next(left, None) is None, STEPS)
    connection.execute("PRAGMA trusted_schema = OFF")
    strange = connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')")
    if strange.fetchone() != (0,):
        raise sqlite3.DatabaseError("it holds more than tables")


def structure(spot: Spot) -> str:
    """The `fingerprint` of a spot's steps."""
    return fingerprint(spot.kernels, spot.run.vendor.function if spot.run and spot.run.vendor else "")


def fingerprint(kernels: Sequence[Kernel], vendor: str) -> str:
    """Canonical hash of the structure of some steps: kernels as syntax trees without names of their own and without
    sizes, the types of their arguments, the vendor function before them ('' if none). Equal for the same operators on
    other shapes, as long as the compiler chooses the same form of kernel for both."""
    parts = [vendor, *(json.dumps([_shapeless(k), sorted(k.signature.items())]) for k in kernels)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _shapeless(kernel: Kernel) -> str:
    try:
        tree = ast.parse(kernel.source)
    except SyntaxError:
        return kernel.hash
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    for node in (n for f in functions for n in ast.walk(f)):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > 1:
            node.value = 0
    return "\n".join(ast.unparse(s) for f in functions for s in f.body)


def _experience(row: tuple[Any, ...]) -> Experience | None:
    """None for a row that `learn` did not write."""
    lesson, direction, factor, kept, bound, source = row
    sound = (all(isinstance(t, str) for t in (lesson, direction, source)) and isinstance(factor, float)
             and math.isfinite(factor) and kept in (0, 1) and bound in get_args(Bound)
             and len(lesson) + len(direction) <= LONGEST_LESSON)
    return Experience(lesson, direction, factor, bool(kept), bound, source) if sound else None


def _text(said: str) -> str:
    """A model may answer with half of a pair of surrogates, which no file takes."""
    return said.encode(errors="backslashreplace").decode()
