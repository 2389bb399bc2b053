"""The brain that gives a recorded run's answers again: offline, without cost, and the same every time.

A record is a file `exchanges.jsonl`, the folder of a run that holds one, or a handoff folder: one format (`Exchange`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelopt_bot.agents import handoff
from kernelopt_bot.agents.brain import Exchange, Question, Reply
from kernelopt_bot.errors import InputError

NAME = "exchanges.jsonl"


class Replay:
    """Answers by a question's key; where the compiler has changed since, by the run's buffers, if only one fits."""

    name = "replay"

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        # The last record of a key counts: it may say what became of it.
        self._known = {e.key: e for e in exchanges}
        self._signatures = {e.spot: e.signature for e in self._known.values() if e.spot}

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        return [self._reply(q) for q in questions]

    def _reply(self, question: Question) -> Reply:
        found = self._known.get(question.key) or self._alike(question)
        if found is None:
            return Reply("unknown", reason="the record has no such question")
        return Reply(found.outcome, self._moved(found.text, question), found.reason, found.prompt, model=found.model)

    def _moved(self, text: str, question: Question) -> str:
        """An answer about a whole program names its runs: by today's hashes where the compiler has changed since."""
        present = {s.key for s in question.spots}
        for old, signature in self._signatures.items():
            new = [s.key for s in question.spots if s.signature == signature]
            if question.direction is None and old not in present and len(new) == 1:
                text = text.replace(old, new[0])
        return text

    def _alike(self, question: Question) -> Exchange | None:
        direction = question.direction
        if direction is None or not question.spots:
            return None
        wanted = (question.role, question.round, question.attempt, bool(question.repair), direction.name,
                  question.spots[0].signature)
        found = [e for e in self._known.values() if wanted == (
            e.role, e.round, e.attempt, e.key.endswith("-repair"), e.direction, e.signature)]
        return found[0] if len(found) == 1 else None


def load(path: Path) -> list[Exchange]:
    """Every exchange of a record, but those with the built-in brain: it was asked the same questions, under the same
    keys, and takes part by itself. Raises InputError where there is none."""
    files = [path] if path.is_file() else sorted(path.rglob(NAME)) if path.is_dir() else []
    found: list[Exchange] = []
    try:
        for file in files:
            for line in file.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    exchange = Exchange.from_json(json.loads(line))
                    found += [exchange] if exchange.brain != "builtin" else []
    except (OSError, UnicodeDecodeError) as e:
        raise InputError("the record cannot be read", where=path.name, fix="name a run's exchanges.jsonl") from e
    if not files and path.is_dir():
        found = [entry.exchange for folder in handoff.folders(path) for entry in handoff.entries(folder)
                 if entry.exchange.outcome == "answered"]
    if not found:
        raise InputError("there is no recorded exchange", where=str(path),
                         fix="name a run's exchanges.jsonl, its folder, or a handoff folder with answers")
    return found
