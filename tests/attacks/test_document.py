"""docs/attacks.md names tests that exist, and all of this folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/attacks.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)


def names_in(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text()))
    return {n.name for n in found if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}


def test_every_row_names_tests_that_exist() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("|---")]
    rows = [r for r in rows if not r.endswith("| test |")]
    assert len(rows) > 30
    for row in rows:
        assert len(row.replace("\\|", "").split("|")) == 5, row
        assert re.search(r"\| `tests/[^|]+ \|$", row), f"no test: {row}"
    for path, name in NAMED:
        assert (ROOT / path).is_file(), path
        assert not name or name in names_in(ROOT / path), f"{path}::{name}"


def test_every_test_of_this_folder_is_named() -> None:
    here = {(f"tests/attacks/{p.name}", name) for p in Path(__file__).parent.glob("test_*.py")
            for name in names_in(p) if p.name != Path(__file__).name}
    assert not here - set(NAMED) - {("tests/attacks/test_hostile_commit.py",
                                     "test_it_ends_with_a_report_of_the_models_error")}
