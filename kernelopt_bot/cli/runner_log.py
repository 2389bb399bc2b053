"""What stands between text of others in a log and the workflow's runner, which reads logs for commands."""

from __future__ import annotations

import os
import secrets

import click


def stop_commands(*, quiet: bool = False) -> None:
    """From here to the end of this process no line of its log is a command to the runner, whoever wrote it.

    Standard output and error reach the runner by ways of their own, so both say it, and it is never taken back: what
    comes last on one of them could be read after the other's word to go on. The runner takes `##[set-output name=x]y`
    for a command anywhere in a line, so nothing that is printed can be trusted by its beginning. `quiet`: standard
    output is data.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#stopping-and-starting-workflow-commands
    https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
    """
    if os.environ.get("GITHUB_ACTIONS") == "true":
        word = secrets.token_hex(16)
        for err in (True,) if quiet else (True, False):
            click.echo(f"::stop-commands::{word}", err=err)
