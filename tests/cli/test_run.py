from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.cli.searching import refuse_committed_interpreter
from kernelopt_bot.errors import InputError


@pytest.mark.parametrize("tracked", [
    ".venv/bin/python", ".venv/pyvenv.cfg", ".venv", ".venv/lib/python3.11/site-packages/x.pth", ".venv/bin/activate",
])
def test_an_environment_that_the_commit_holds_is_refused(tmp_path: Path, tracked: str) -> None:
    """Whoever writes pyvenv.cfg says what the jail may read."""
    with pytest.raises(InputError, match="committed") as e:
        refuse_committed_interpreter(".venv/bin/python", tmp_path, ["net/model.py", tracked])
    assert e.value.where == tracked


@pytest.mark.parametrize("python", [".venv/bin/python", "/usr/bin/python3", "python3", "../other/bin/python", ""])
def test_other_interpreters_are_not(tmp_path: Path, python: str) -> None:
    refuse_committed_interpreter(python, tmp_path, ["net/model.py", "venv/readme", "bin/tool"])


def test_an_absolute_path_into_the_checkout_counts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="committed"):
        refuse_committed_interpreter(str(tmp_path / "env/bin/python"), tmp_path, ["env/pyvenv.cfg"])
