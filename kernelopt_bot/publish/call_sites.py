"""The call sites that a publication changes, read by REST at the job's commit.

Which file that is says the configuration of that commit, never the bundle: a target of the report is only looked up by
its path and class. The commit's author may name any Python file; the change is two lines, which `targets.wire` proves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelopt_bot.config import Config, TargetConfig, Traced
from kernelopt_bot.config_sources import listed
from kernelopt_bot.errors import InputError
from kernelopt_bot.publish.files import check_call_sites
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.trees import PLAIN, blob, entry_at
from kernelopt_bot.search.result import TargetResult
from kernelopt_bot.targets.discover import INIT, INPUTS
from kernelopt_bot.targets.source import LIMIT
from kernelopt_bot.targets.wire import Wiring, wire


def call_sites(rest: Rest, commit: str, config: Config, adopted: Sequence[tuple[TargetResult, str]],
               change: Callable[..., Wiring] = wire) -> Wiring:
    """The changes at `commit` for (result, artifact folder); `config` is the policy. `change`: `targets.wire.wire`, or
    `unwire` for artifacts that go away. Raises UserError, InputError."""
    if not adopted:
        return Wiring({}, ())
    known: dict[str, dict[str, Json]] = {}
    targets = listed(Traced(config), reader_at(rest, commit, PLAIN, known)).config.targets
    if change is wire:
        check_examples([r for r, _ in adopted], targets)
    wanted = {(t.path, t.entry): t.wire for t in targets if t.wire}
    asked = [(replace(r.target, wire=wanted[at]), artifact) for r, artifact in adopted
             if (at := (r.target.path, r.target.entry)) in wanted]
    # What is published keeps no executable mode.
    made = change(asked, reader_at(rest, commit, PLAIN[:1], known)) if asked else Wiring({}, ())
    check_call_sites(made.files, {w.rpartition(":")[0] for w in wanted.values()}, config.artifact.root)
    return made


def check_examples(results: Sequence[TargetResult], targets: Sequence[TargetConfig]) -> None:
    """Raises InputError unless the functions that an artifact's test calls are those of the commit's configuration, or
    those of the convention: a repository holds others too, which a test must not call by another's word."""
    own = {(t.path, t.entry): t for t in targets}
    for t in (r.target for r in results):
        listed_as = own.get((t.path, t.entry))
        inputs = listed_as.inputs if listed_as is not None else INPUTS
        init = {listed_as.init} if listed_as is not None and listed_as.init else {"", INIT}
        if t.inputs != inputs or t.init not in init:
            raise InputError("the example inputs of a target are not those of the commit",
                             where=f"{t.path}:{t.entry}: {t.inputs!r}, {t.init!r}"[:300],
                             fix="run execute and publish with one release of KernelOPT; nothing was published")


def reader_at(rest: Rest, commit: str, modes: tuple[str, ...],
              known: dict[str, dict[str, Json]]) -> Callable[[str], bytes | None]:
    """Files of `commit` of these modes and of at most `targets.source.LIMIT` bytes; None for all others. `known`: as
    `entry_at` takes it."""

    def read(path: str) -> bytes | None:
        entry = entry_at(rest, commit, path, known)
        if entry is None or entry["type"] != "blob" or entry["mode"] not in modes or int(entry.get("size", 0)) > LIMIT:
            return None
        return blob(rest, str(entry["sha"]), LIMIT)

    return read
