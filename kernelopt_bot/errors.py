"""Errors.

KerneloptError
  UserError       anticipated: says what happened, where, and what to do; exit 1 (the job) or 2 (its input)
    InputError    bad input: configuration, target, repository, command line; exit 2
    Unavailable   the machine cannot do it now: GPU busy, no jail, out of memory, disk full; exit 1
  (anything else that escapes is a bug: exit 3 and a paste-ready report)
"""

from __future__ import annotations


class KerneloptError(Exception):
    """Base of everything this package raises on purpose."""


class UserError(KerneloptError):
    """An anticipated failure. Each part is one plain sentence or phrase without secrets."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "", kind: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        self.kind = kind or type(self).__name__
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"  where: {self.where}")
        if self.fix:
            parts.append(f"  what to do: {self.fix}")
        return "\n".join(parts)


class InputError(UserError):
    """What was asked for cannot be understood or found."""

    exit_code = 2


class Unavailable(UserError):
    """The machine cannot do it now."""
