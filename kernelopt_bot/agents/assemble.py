"""Which brains a run has beside the built-in one, by configuration and command line."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, get_args

from kernelopt_bot.agents import prompts, replay
from kernelopt_bot.agents.brain import Brain, Prompt, Question
from kernelopt_bot.agents.handoff import Handoff
from kernelopt_bot.agents.party import Gather, Party, nobody
from kernelopt_bot.agents.records import Records
from kernelopt_bot.agents.settings import Agents
from kernelopt_bot.errors import InputError

Choice = Literal["", "builtin", "llm", "handoff", "replay"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


def gather(settings: Agents, choice: Choice = "", folder: Path | None = None) -> Gather:
    """`choice` '': the model that the configuration names, if it names one, else built-in brains alone. `folder`: where
    handoff writes, or what replay reads. Raises InputError where a choice lacks what it needs."""
    chosen = choice or ("llm" if settings.model else "builtin")
    if chosen == "builtin" or settings.search.rounds == 0:
        return nobody
    if chosen == "llm" and not settings.model:
        raise InputError("no model is configured", where="agents.model in .kernelopt.yml",
                         fix="name one, or choose another brain: handoff needs none")
    if chosen in ("handoff", "replay") and folder is None:
        raise InputError(f"the brain {chosen} needs a folder", where="the command line",
                         fix=f"add --{chosen} FOLDER")
    if chosen == "replay" and folder is not None:
        replay.load(folder)  # a record that cannot be read is said before the search
    return partial(_party, settings, chosen, folder)


def _party(settings: Agents, chosen: str, folder: Path | None, run: Path) -> Party:
    """`run`: the folder of one target in a run's."""
    brain: Brain
    if chosen == "llm":
        # The client's package takes a second to import, which the runs without a model need not wait for.
        from kernelopt_bot.agents import llm

        brain = llm.brain(settings, run)
    elif chosen == "handoff" and folder is not None:
        brain = Handoff(folder / run.name, partial(_words, settings.prompt_tokens))
    else:
        assert folder is not None
        own = folder / run.name
        brain = replay.Replay(replay.load(own if own.is_dir() else folder))
    return Party((brain,), Records(run).record, settings.search, settings.send_source, chosen != "replay")


def _words(tokens: int, question: Question) -> Prompt:
    return prompts.render(question, tokens)
