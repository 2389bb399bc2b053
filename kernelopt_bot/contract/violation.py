"""One way in which a candidate breaks the contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Violation:
    line: int
    """Line of the source, from 1; 0 where the plan or an option is at fault."""
    rule: str
    """A short fixed slug, `import`, `name`, `call`, `store`, ...: what tests and reports group by."""
    message: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message
