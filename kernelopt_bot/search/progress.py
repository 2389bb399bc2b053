"""What a long search tells the person who waits."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def update(self, text: str, done: int = 0, of: int = 0) -> None:
        """What is being done now; `done` of `of` steps where that is known (0 of 0 otherwise)."""

    def note(self, text: str) -> None:
        """Something that happened and stays worth reading."""


class Silent:
    """Tells nothing."""

    def update(self, text: str, done: int = 0, of: int = 0) -> None:
        return None

    def note(self, text: str) -> None:
        return None


class Named:
    """Another progress, with a name before every text: for searches that run side by side."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name

    def update(self, text: str, done: int = 0, of: int = 0) -> None:
        self._progress.update(f"{self._name}: {text}", done, of)

    def note(self, text: str) -> None:
        self._progress.note(f"{self._name}: {text}")
