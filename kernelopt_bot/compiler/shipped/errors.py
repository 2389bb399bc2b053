"""What the runtime raises and warns."""

from __future__ import annotations


class ArtifactError(RuntimeError):
    """The artifact cannot be used as asked; the message says why and what to do."""


class ArtifactWarning(UserWarning):
    """The compiler's own code runs where a verified kernel could have run."""


class PlanError(ValueError):
    """A launch plan that cannot be rendered."""
