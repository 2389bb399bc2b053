from __future__ import annotations

import re

import pytest

from kernelopt_bot.cli.main import BY_HAND, COMMANDS, main
from kernelopt_bot.cli.runner_log import stop_commands

STOP = r"::stop-commands::[0-9a-f]{32}\n"


def test_the_log_takes_no_commands_any_more(monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    stop_commands()
    out, err = capsys.readouterr()
    assert out == err and re.fullmatch(STOP, out)
    stop_commands(quiet=True)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("GITHUB_ACTIONS", "")
    stop_commands()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_execute_code_say_so_first(name: str, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage:") and re.fullmatch(STOP if name in BY_HAND else "", err)
