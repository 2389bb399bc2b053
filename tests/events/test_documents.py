"""docs/commands.md and docs/events.md against the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from kernelopt_bot.events.commands import LEVERS, MOST_TARGETS, usage
from kernelopt_bot.events.job import REACTIONS, Event
from kernelopt_bot.events.policy import STARTS
from kernelopt_bot.events.settings import Commands, Events, Runner

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS, EVENTS = (DOCS / "commands.md").read_text(), (DOCS / "events.md").read_text()


def test_the_commands_are_those_of_help() -> None:
    assert usage() in COMMANDS
    assert all(f"`{lever}`" in COMMANDS for lever in LEVERS)
    assert f"at most {MOST_TARGETS}" in COMMANDS
    assert set(re.findall(r"^\| \S+ `([a-z]+)` \|", COMMANDS, re.M)) == set(REACTIONS.values())


def test_every_event_and_action_is_described() -> None:
    assert all(f"| `{event}`" in EVENTS for event in get_args(Event) if event != "manual")
    assert all(action in EVENTS for action in (*STARTS, "edited", "labeled", "unlabeled", "closed"))


def test_keys_exist_and_defaults_are_those_of_the_code() -> None:
    sections = {"events": Events(), "commands": Commands(), "runner": Runner()}
    named = re.findall(r"`(events|commands|runner)\.(\w+)`(?: \(`?([\w-]+)`?\))?", COMMANDS + EVENTS)
    assert {key for section, key, _ in named if section == "events"} == set(Events.model_fields)
    for section, key, default in named:
        value = getattr(sections[section], key)
        if default:
            assert default == (f"{value:g}" if isinstance(value, float) else str(value)), key
