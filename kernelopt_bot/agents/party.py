"""The brains that a target's search has beside the built-in one, as the command line hands them to the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelopt_bot.agents.brain import Brain, Exchange
from kernelopt_bot.agents.strategy_settings import Strategy


@dataclass(frozen=True)
class Party:
    """`record` keeps each exchange in the run's folder; it may be called again for one that is known already."""

    brains: tuple[Brain, ...]
    record: Callable[[Exchange], None]
    settings: Strategy
    send_source: bool = False
    teaches: bool = True
    """Whether what this search learns is new: the lessons of a record were learnt when it was made."""


Gather = Callable[[Path], Party | None]
"""The folder of one target's run -> its party; None: built-in brains alone."""


def nobody(folder: Path) -> None:
    """Built-in brains alone."""
