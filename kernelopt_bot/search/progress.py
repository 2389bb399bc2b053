"""What a long search tells the person who waits."""

from __future__ import annotations

from typing import Any, Protocol


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


def from_worker(progress: Progress, prefix: str) -> Any:
    """A callback for `Worker.call` that puts the worker's own progress behind `prefix`."""

    def report(message: dict[str, Any]) -> None:
        progress.update(f"{prefix}: {message['text']}", message["done"], message["of"])

    return report
