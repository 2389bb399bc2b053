"""What a gate answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

GateName = Literal["static", "correctness", "model", "performance"]
GATES: tuple[GateName, ...] = ("static", "correctness", "model", "performance")


class Status(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Verdict:
    """One gate's answer with its evidence; `report.json` holds it verbatim."""

    gate: GateName
    status: Status
    reason: str = ""
    """Empty for a plain pass; otherwise one sentence with numbers."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """JSON-serialisable."""
    seconds: float = 0.0

    @property
    def lets_on(self) -> bool:
        """Only a pass and a stated not-applicable let a candidate on."""
        return self.status is Status.PASS or (self.status is Status.NOT_APPLICABLE and bool(self.reason))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "status": self.status.value}
