from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelopt_bot.agents import assemble
from kernelopt_bot.agents.handoff import Handoff
from kernelopt_bot.agents.party import nobody
from kernelopt_bot.agents.replay import Replay
from kernelopt_bot.agents.settings import Agents
from kernelopt_bot.errors import InputError

RECORD = Path(__file__).parents[1] / "data" / "agents" / "rms_norm"


def test_without_a_model_there_is_nobody() -> None:
    assert assemble.gather(Agents()) is nobody
    assert assemble.gather(Agents(model="m"), "builtin") is nobody
    assert assemble.gather(Agents.model_validate({"model": "m", "search": {"rounds": 0}})) is nobody


def test_each_choice_makes_its_brain_for_one_target(tmp_path: Path) -> None:
    settings = Agents.model_validate({"send_source": True, "search": {"rounds": 2}})
    party = assemble.gather(settings, "handoff", tmp_path / "hand")(tmp_path / "run" / "net")
    assert party is not None and party.send_source and party.settings.rounds == 2
    (brain,) = party.brains
    assert isinstance(brain, Handoff) and brain.folder == tmp_path / "hand" / "net" and party.teaches
    party = assemble.gather(settings, "replay", RECORD)(tmp_path / "run" / "net")
    assert party is not None and isinstance(party.brains[0], Replay)
    assert not party.teaches  # its lessons were learnt when it was recorded


@pytest.mark.parametrize(("choice", "words"), [
    ("llm", "no model is configured"), ("handoff", "needs a folder"), ("replay", "needs a folder")])
def test_a_choice_that_lacks_something_says_so(choice: assemble.Choice, words: str) -> None:
    with pytest.raises(InputError, match=words):
        assemble.gather(Agents(), choice)


def test_a_record_that_cannot_be_read_is_said_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recorded exchange"):
        assemble.gather(Agents(), "replay", tmp_path)


def test_the_search_reaches_no_model_client() -> None:
    """Over everything that the search's modules import of the package, at any depth and anywhere in a file."""
    package = Path(assemble.__file__).parents[1]

    def imported(module: str) -> set[str]:
        path = package.parent / Path(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found = set()
        for node in ast.walk(ast.parse(path.read_text())) if path.is_file() else ():
            if isinstance(node, ast.Import):
                found |= {a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
        return found

    left = [f"kernelopt_bot.search.{p.stem}" for p in (package / "search").glob("*.py")]
    seen = set(left)
    while left:
        fresh = imported(left.pop()) - seen
        seen |= fresh
        left += [m for m in fresh if m.startswith("kernelopt_bot")]
    assert "kernelopt_bot.agents.strategy" in seen
    assert not {"openai", "kernelopt_bot.agents.client", "kernelopt_bot.agents.llm"} & seen
