"""Facts -> prompt: the templates in `templates/prompts/`, one a role, within a stated number of tokens.

The system text of a role is the same for all its questions, and the user text begins with what changes least, so that
servers that keep the beginnings of prompts find them again. Whatever comes from a repository, a compiler or another
candidate stands between marks that its own text cannot contain, labelled as data (`quote.py`). Tokens are estimated
at three bytes each: byte-pair encodings make three to four bytes of code into one, so the estimate is rather too high.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from typing import Any

import jinja2

from kernelopt_bot.agents import quote
from kernelopt_bot.agents.answers import CandidateAnswer
from kernelopt_bot.agents.brain import Prompt, Question, Role
from kernelopt_bot.agents.trim import trimmed
from kernelopt_bot.contract import names
from kernelopt_bot.contract.plan import LAUNCHES, SCRATCH_LIMIT, STAGES, WARPS
from kernelopt_bot.report.templates import environment

TOKENS = 24_000
BYTES_A_TOKEN = 3
_NUMBER = re.compile(r"\{# (?P<role>\w+) (?P<number>\d+) #\}")


def render(question: Question, tokens: int = TOKENS) -> Prompt:
    """The prompt of at most `tokens` (estimated), as far as leaving out what may be left out can reach that; `cut` says
    what was. The same question gives the same bytes."""
    system = _system(question.role)

    def size(q: Question, cut: tuple[str, ...]) -> int:
        return estimate(system) + estimate(_user(q, cut))

    kept, cut = trimmed(question, size, tokens)
    user = _user(kept, cut)
    return Prompt(system, user, version(question.role), estimate(system) + estimate(user), cut)


def estimate(text: str) -> int:
    """Tokens of a text, rather too many."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


@functools.cache
def version(role: Role) -> str:
    """`executor 1 3f9a12cd`: the number that is kept by hand, and a digest of all that is rendered from."""
    found = _NUMBER.match(_text(f"{role}.j2"))
    assert found is not None and found["role"] == role
    parts = [_text(name) for name in sorted(_environment().list_templates())]
    return f"{role} {found['number']} {hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:8]}"


@functools.cache
def _environment() -> jinja2.Environment:
    made = environment("prompts")
    made.globals |= {
        "contract": _contract(), "example": _example(made), "fence": quote.fence, "line": quote.line,
        "us": lambda x: "not measured" if x is None else f"{x:.4g} us", "rate": lambda x: f"{x:.4g}",
        "compact": lambda x: json.dumps(x, sort_keys=True, default=str)}
    return made


def _text(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0]


@functools.cache
def _system(role: Role) -> str:
    return _block(role, "system", {})


def _user(question: Question, cut: tuple[str, ...]) -> str:
    return _block(question.role, "user", {"q": question, "cut": cut})


def _block(role: Role, name: str, values: dict[str, Any]) -> str:
    template = _environment().get_template(f"{role}.j2")
    text = "".join(template.blocks[name](template.new_context(values)))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _contract() -> dict[str, Any]:
    """What the contract allows, from the lists that enforce it."""
    by_root: dict[str, list[str]] = {}
    for name in sorted(names.EXPORTED - names.NEWER):
        root, _, rest = name.partition(".")
        by_root.setdefault(root, []).append(rest)
    imports = [f"import {what} as {local}" if not module and what != local else f"import {what}" if not module
               else f"from {module} import {what}" + (f" as {local}" if local != what else "")
               for module, what, local in names.IMPORTS]
    return {"imports": sorted(imports), "exported": sorted(by_root.items()), "builtins": sorted(names.BUILTINS),
            "methods": sorted(names.METHODS), "properties": sorted(names.PROPERTIES), "warps": WARPS,
            "stages": (STAGES.start, STAGES.stop - 1), "launches": LAUNCHES, "scratch_gib": SCRATCH_LIMIT // 1024**3}


def _example(made: jinja2.Environment) -> str:
    """The worked example as an answer, in the form that is wanted."""
    assert made.loader is not None
    source, plan, why = (made.loader.get_source(made, f"example_{part}")[0]
                         for part in ("candidate.py", "plan.json", "why.txt"))
    text = f'{{\n"source": {json.dumps(source)},\n"plan": {plan.strip()},\n"why": {json.dumps(why.strip())}\n}}'
    CandidateAnswer.model_validate_json(text)
    return text
