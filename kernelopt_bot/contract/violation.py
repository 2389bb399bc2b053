"""One way in which a candidate breaks the contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


def shown(value: object) -> str:
    """A value of a plan for a message: short, whatever it is."""
    if value is None or isinstance(value, str | bool | float):
        return repr(value if not isinstance(value, str) else value[:80])
    if isinstance(value, int) and value.bit_length() <= 256:
        return repr(value)
    return f"a value of type {type(value).__name__}"


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
