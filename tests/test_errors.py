"""Errors say what, where and what to do, and carry the exit code."""

from __future__ import annotations

import pytest

from kernelopt_bot.cli.main import main
from kernelopt_bot.errors import InputError, KerneloptError, Unavailable, UserError


@pytest.mark.parametrize(("kind", "code"), [(UserError, 1), (InputError, 2), (Unavailable, 1)])
def test_exit_codes(kind: type[UserError], code: int) -> None:
    error = kind("the file is gone", where="a.py", fix="bring it back")
    assert error.exit_code == code
    assert error.kind == kind.__name__
    assert isinstance(error, KerneloptError)
    assert str(error) == "the file is gone\n  where: a.py\n  what to do: bring it back"


def test_parts_that_are_not_known_are_left_out() -> None:
    assert str(UserError("no")) == "no"
    assert str(UserError("no", fix="yes")) == "no\n  what to do: yes"


def test_a_kind_of_its_own() -> None:
    assert UserError("no", kind="target_import").kind == "target_import"


def test_bad_input_leaves_the_command_line_with_code_2_and_all_three_parts(
        tmp_path: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    with open(".kernelopt.yml", "w") as file:
        file.write("version: 1\ngatez: {}\n")
    assert main(["config"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == ('error: unknown key "gatez"\n  where: .kernelopt.yml:2\n  what to do: did you mean "gates"?\n')
