"""The brain that asks a language model: words by `prompts.py`, calls by `client.py`, costs by `spend.py`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelopt_bot.agents import answers
from kernelopt_bot.agents.brain import ROLES, Brain, Outcome, Prompt, Question, Render, Reply, Usage
from kernelopt_bot.agents.client import Client
from kernelopt_bot.agents.messages import FATAL, PASSING, Answer, Kind, ModelError, Request, Spent
from kernelopt_bot.agents.prompts import render
from kernelopt_bot.agents.settings import Agents
from kernelopt_bot.agents.spend import LEDGER, Ledger

LOST_AFTER = 3
"""Questions in a row that no repetition helped: the server is taken for lost then."""
_OUTCOMES: dict[Kind, Outcome] = {
    "refused": "refused", "truncated": "truncated", "empty": "empty", "too_long": "too long"}


class LanguageModel:
    """A `Brain`. Questions of one call are asked side by side, `agents.parallel` at most; replies keep their order."""

    name = "llm"

    def __init__(self, client: Client, settings: Agents, words: Render) -> None:
        self._client, self._settings, self._words = client, settings, words
        self._failures = 0

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        """Raises Unavailable where the costs cannot be recorded; whatever else fails is a reply that says so."""
        if len(questions) < 2 or self._settings.parallel < 2:
            return [self._one(q) for q in questions]
        with ThreadPoolExecutor(self._settings.parallel, thread_name_prefix="kernelopt-model") as threads:
            return list(threads.map(self._one, questions))

    def close(self) -> None:
        self._client.close()

    def _one(self, question: Question) -> Reply:
        prompt = self._words(question)
        model = self._settings.of(question.role).model
        if prompt.tokens > self._settings.prompt_tokens:
            return Reply("too long", reason=(
                f"what may not be left out of the prompt has {prompt.tokens} tokens (agents.prompt_tokens: "
                f"{self._settings.prompt_tokens})"), prompt=prompt, model=model)
        request = Request(prompt.system, prompt.user, answers.schema(question.role), question.role)
        try:
            answer = self._client.ask(question.role, request)
        except Spent as e:
            return Reply("spent", reason=str(e), prompt=prompt, model=model, lasting=True)
        except ModelError as e:
            self._failures += e.kind in PASSING
            return _failed(e, prompt, model, lasting=e.kind in FATAL or self._failures >= LOST_AFTER)
        self._failures = 0
        return Reply("answered", answer.text, prompt=prompt, usage=_usage(answer), seconds=answer.seconds,
                     model=answer.model)


def brain(settings: Agents, folder: Path) -> Brain:
    """Of the model that the configuration names. `folder` is the target's in a run's: all targets of a run share what
    the run may cost. Raises InputError (no model, no key, no price), Unavailable."""
    models = sorted({settings.of(role).model for role in ROLES})
    ledger = Ledger(folder.parent / LEDGER, settings.limits, settings.prices, models)
    return LanguageModel(Client(settings, ledger), settings, lambda q: render(q, settings.prompt_tokens))


def _usage(answer: Answer) -> Usage:
    used = answer.usage
    if used is None:
        return Usage(money_usd=answer.usd)
    return Usage(used.input, used.cached, used.output, answer.usd)


def _failed(error: ModelError, prompt: Prompt, model: str, *, lasting: bool) -> Reply:
    used = error.usage
    usage = Usage(used.input, used.cached, used.output, error.usd) if used is not None else Usage(money_usd=error.usd)
    return Reply(_OUTCOMES.get(error.kind, "unavailable"), reason=error.what, prompt=prompt, usage=usage,
                 seconds=error.seconds, model=model, lasting=lasting)
