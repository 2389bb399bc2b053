"""The brain that hands its questions to whoever reads files: a person, a coding agent, a model elsewhere.

`DIR/<target>/<key>.json` is the exchange, `<key>.prompt.md` its prompt as text, `<key>.answer.md` (or `.json`, `.txt`)
what was answered, which a later run of the same search reads. Files of others are data: they are read, never run.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelopt_bot.agents import answers
from kernelopt_bot.agents.brain import Exchange, Prompt, Question, Render, Reply, Role
from kernelopt_bot.contract import source as contract
from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.process import redact

ANSWERS = (".answer.md", ".answer.json", ".answer.txt")
LONGEST = 1 << 20
"""Bytes of an answer's file; longer ones are refused."""
HOW = """# How to answer

Each `KEY.prompt.md` is one question. Write the answer beside it as `KEY.answer.md` (or `.answer.json`, `.answer.txt`):
the JSON object that the prompt asks for, alone or in a fence. Device code may be in a fence of its own instead of a
JSON text. `KEY.json` is for the bot; leave it. Then run the same command again: it reads the answers, and writes
further questions where there are any. `kernelopt handoff status DIR` says what is open and which answers do not fit.
"""


@dataclass(frozen=True)
class Entry:
    """One question of a folder. `faults`: why its answer does not fit, () if it does or there is none."""

    exchange: Exchange
    faults: tuple[str, ...] = ()


class Handoff:
    """Of one target. Raises Unavailable where the folder cannot be written, InputError where an answer is no file."""

    name = "handoff"

    def __init__(self, folder: Path, words: Render) -> None:
        self.folder, self._words = folder, words

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        return [self._reply(q) for q in questions]

    def _reply(self, question: Question) -> Reply:
        text = answer_of(self.folder, question.key)
        if text is not None:
            return Reply("answered", text, prompt=self._words(question))
        reply = Reply("pending", reason="the question was written out", prompt=self._words(question))
        write(self.folder, Exchange.of(self.name, question, reply))
        return reply


def write(folder: Path, exchange: Exchange) -> None:
    """The question's files, and its answer where it has one. Raises Unavailable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        how = folder.parent / "README.md"
        if not how.exists():
            how.write_text(HOW, encoding="utf-8")
        _put(folder / f"{exchange.key}.json", json.dumps(exchange.to_json(), indent=1, sort_keys=True) + "\n")
        _put(folder / f"{exchange.key}.prompt.md", _page(exchange.role, exchange.key, exchange.prompt))
        if exchange.outcome == "answered" and answer_of(folder, exchange.key) is None:
            _put(folder / f"{exchange.key}{ANSWERS[0]}", exchange.text)
    except OSError as e:
        raise Unavailable(f"the handoff folder cannot be written: {e.strerror}", where=str(folder),
                          fix="choose a folder that can be written") from e


def answer_of(folder: Path, key: str) -> str | None:
    """What was answered to a question, None where nothing was. Raises InputError."""
    for ending in ANSWERS:
        path = folder / f"{key}{ending}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError as e:
            raise _no_answer(path, e.strerror or "") from e
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _no_answer(path, "it is no plain file")
        with os.fdopen(descriptor, "rb") as stream:
            data = stream.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise _no_answer(path, f"it is longer than {LONGEST} bytes")
        text = data.decode("utf-8", errors="replace").removeprefix("\ufeff")
        if text.strip():
            return text
    return None


def folders(folder: Path) -> list[Path]:
    """Those of the targets, and the folder itself where it is one. Raises InputError."""
    if not folder.is_dir():
        raise InputError("there is no such handoff folder", where=str(folder),
                         fix="name the folder that a run with --brain handoff wrote")
    return [f for f in (folder, *sorted(p for p in folder.iterdir() if p.is_dir())) if any(f.glob("*.prompt.md"))]


def entries(folder: Path) -> list[Entry]:
    """The questions of one target's folder, with their answers as they are now, in order of their keys. Files that are
    no exchange are left out. Raises InputError where an answer cannot be read."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith(ANSWERS):
            continue
        try:
            exchange = Exchange.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        text = answer_of(folder, exchange.key)
        if text is None:
            found.append(Entry(replace(exchange, outcome="pending", text="")))
        else:
            found.append(Entry(replace(exchange, outcome="answered", text=text), faults(exchange.role, text)))
    return found


def faults(role: Role, text: str) -> tuple[str, ...]:
    """Why a text is no answer of the role: its form, and of a candidate the contract; () if it is one."""
    try:
        answer = answers.read(role, text)
    except answers.Malformed as e:
        return e.faults
    if isinstance(answer, answers.CandidateAnswer):
        return tuple(str(v) for v in contract.check(answer.source)[:5])
    return ()


def _page(role: Role, key: str, prompt: Prompt | None) -> str:
    words = f"{prompt.system}\n\n{prompt.user}" if prompt else "The prompt was not recorded."
    schema = json.dumps(answers.schema(role), indent=1)
    return (f"{words}\n\n---\nWrite the answer to `{key}{ANSWERS[0]}`: one JSON object of this schema.\n\n"
            f"```json\n{schema}\n```\n")


def _put(path: Path, text: str) -> None:
    """Whole or not at all, never through a link, and without a secret of this process."""
    made = path.with_name(f".{path.name}.new")
    made.unlink(missing_ok=True)
    made.write_text(redact(text), encoding="utf-8")
    os.replace(made, path)


def _no_answer(path: Path, why: str) -> InputError:
    return InputError(f"the answer cannot be read: {why}", where=path.name, fix="put a plain text file there")
