"""What is left out of a question that is too long, by rule: the cheapest loss first, each loss said.

The slots of a run and, for those who write candidates, its source are never cut: without them no answer can be right. A
question that is nothing but these stays as long as it is, and is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelopt_bot.agents.brain import Attempt, Question, SpotFacts, StepFacts

Rule = Callable[[Question], tuple[Question, str] | None]
"""A question with less in it, and what it lacks; None if there is nothing left for the rule to take."""
FEW_ATTEMPTS = 4
FEW_SPOTS = 6
FEW_CONFIGS = 3
LEAST = 1500
"""Characters of a text that is not cut in the middle any more."""
_GAP = re.compile(r"\n# \[(\d+) characters left out here\]\n")


def trimmed(
    question: Question, size: Callable[[Question, tuple[str, ...]], int], limit: int,
) -> tuple[Question, tuple[str, ...]]:
    """The question, cut until its `size` is at most `limit`, and what was cut, in the order of the rules."""
    said: dict[Rule, str] = {}
    for rule in RULES:
        while size(question, tuple(said.values())) > limit:
            done = rule(question)
            if done is None:
                break
            question, said[rule] = done
    return question, tuple(said.values())


def _older_sources(q: Question) -> tuple[Question, str] | None:
    older = [i for i, a in enumerate(q.history[:-1]) if a.source]
    if not older:
        return None
    history = tuple(replace(a, source="", plan=None) if i in older else a for i, a in enumerate(q.history))
    return replace(q, history=history), "the sources of earlier attempts but the last"


def _lesson_sources(q: Question) -> tuple[Question, str] | None:
    if not any(e.source for e in q.experiences):
        return None
    kept = tuple(replace(e, source="") for e in q.experiences)
    return replace(q, experiences=kept), "the sources of remembered candidates"


def _configs(q: Question) -> tuple[Question, str] | None:
    def fewer(step: StepFacts) -> StepFacts:
        return replace(step, configs=step.configs[:FEW_CONFIGS])

    return _steps(q, fewer, f"all but the first {FEW_CONFIGS} of the compiler's configurations of each step")


def _older_attempts(q: Question) -> tuple[Question, str] | None:
    if len(q.history) <= FEW_ATTEMPTS:
        return None
    return replace(q, history=q.history[-FEW_ATTEMPTS:]), f"all but the last {FEW_ATTEMPTS} attempts"


def _metrics(q: Question) -> tuple[Question, str] | None:
    return _steps(q, lambda s: replace(s, metrics={}), "profiler metrics")


def _minor_sources(q: Question) -> tuple[Question, str] | None:
    return _spots(q, lambda s: replace(s, steps=tuple(replace(x, source="") for x in s.steps)), FEW_SPOTS,
                  f"the sources of all but the {FEW_SPOTS} spots that can save most")


def _minor_spots(q: Question) -> tuple[Question, str] | None:
    """Half of those that remain, each time."""
    if len(q.spots) <= FEW_SPOTS:
        return None
    count = max(FEW_SPOTS, len(q.spots) // 2)
    chosen = _largest(q.spots, count)
    return replace(q, spots=tuple(s for i, s in enumerate(q.spots) if i in chosen)), (
        f"all but the {count} spots that can save most")


def _parent(q: Question) -> tuple[Question, str] | None:
    if q.parent is None or not q.history or not q.parent.source or q.role == "summarizer":
        return None
    return replace(q, parent=replace(q.parent, source="", plan=None)), "the source of the candidate to start from"


def _memory(q: Question) -> tuple[Question, str] | None:
    return (replace(q, experiences=()), "what was remembered of other programs") if q.experiences else None


def _all_but_last(q: Question) -> tuple[Question, str] | None:
    return (replace(q, history=q.history[-1:]), "all attempts but the last") if len(q.history) > 1 else None


def _surroundings(q: Question) -> tuple[Question, str] | None:
    if not any(s.neighbours for s in q.spots):
        return None
    return replace(q, spots=tuple(replace(s, neighbours=()) for s in q.spots)), "the neighbouring steps"


def _evidence(q: Question) -> tuple[Question, str] | None:
    def bare(attempt: Attempt) -> Attempt:
        return replace(attempt, gates=tuple(replace(g, evidence={}) for g in attempt.gates))

    history = tuple(bare(a) for a in q.history)
    return (replace(q, history=history), "the gates' figures, not their reasons") if history != q.history else None


def _middles(q: Question) -> tuple[Question, str] | None:
    if q.role in ("executor", "fuser"):
        return None
    return _steps(q, lambda s: replace(s, source=_shortened(s.source)), "the middle of long kernels")


def _most_sources(q: Question) -> tuple[Question, str] | None:
    return _spots(q, lambda s: replace(s, steps=tuple(replace(x, source="") for x in s.steps)), 1,
                  "the sources of all but the spot that can save most")


def _answers(q: Question) -> tuple[Question, str] | None:
    """Of what a brain itself wrote: the answer to repair, the candidates of the last attempt and to start from."""
    history = tuple(replace(a, source=_shortened(a.source)) for a in q.history)
    parent = None if q.parent is None else replace(q.parent, source=_shortened(q.parent.source))
    repair = None if q.repair is None else replace(q.repair, text=_shortened(q.repair.text))
    less = replace(q, history=history, parent=parent, repair=repair)
    return (less, "the middle of long answers") if less != q else None


RULES: tuple[Rule, ...] = (
    _older_sources, _lesson_sources, _configs, _older_attempts, _metrics, _minor_sources, _minor_spots, _parent,
    _memory, _all_but_last, _surroundings, _evidence, _answers, _middles, _most_sources)


def _steps(q: Question, change: Callable[[StepFacts], StepFacts], what: str) -> tuple[Question, str] | None:
    spots = tuple(replace(s, steps=tuple(change(x) for x in s.steps)) for s in q.spots)
    return (replace(q, spots=spots), what) if spots != q.spots else None


def _spots(
    q: Question, change: Callable[[SpotFacts], SpotFacts], whole: int, what: str
) -> tuple[Question, str] | None:
    """Changes all but the `whole` spots that can save most."""
    chosen = _largest(q.spots, whole)
    spots = tuple(s if i in chosen else change(s) for i, s in enumerate(q.spots))
    return (replace(q, spots=spots), what) if spots != q.spots else None


def _largest(spots: Sequence[SpotFacts], count: int) -> set[int]:
    return set(sorted(range(len(spots)), key=lambda i: (-spots[i].savings_us, i))[:count])


def _shortened(source: str) -> str:
    """Half of it, the middle left out."""
    if len(source) <= LEAST:
        return source
    end = len(source) // 4
    middle = source[end:-end]
    known = sum(int(n) for n in _GAP.findall(middle))
    gone = len(_GAP.sub("", middle)) + known
    return f"{source[:end]}\n# [{gone} characters left out here]\n{source[-end:]}"
