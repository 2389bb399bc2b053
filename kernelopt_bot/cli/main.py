"""The console script: commands, and what becomes of errors.

Exit codes: 0 done (also when nothing was adopted); 1 an anticipated failure of the job; 2 bad input; 3 a bug, with a
report to paste; 130 interrupted.
"""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from kernelopt_bot import __version__
from kernelopt_bot.cli.runner_log import stop_commands
from kernelopt_bot.errors import UserError
from kernelopt_bot.process import redact

COMMANDS = {
    "run": "kernelopt_bot.cli.run",
    "authorise": "kernelopt_bot.cli.authorise",
    "execute": "kernelopt_bot.cli.execute",
    "publish": "kernelopt_bot.cli.publish",
    "optimize": "kernelopt_bot.cli.optimize",
    "verify": "kernelopt_bot.cli.verify",
    "bench": "kernelopt_bot.cli.bench",
    "doctor": "kernelopt_bot.cli.doctor",
    "config": "kernelopt_bot.cli.config",
    "init": "kernelopt_bot.cli.init",
    "check": "kernelopt_bot.cli.check",
    "sweep": "kernelopt_bot.cli.sweep",
    "trace": "kernelopt_bot.cli.trace",
    "handoff": "kernelopt_bot.cli.handoff",
}
"""Command -> module with a click command named `command`; imported only when asked for."""


BY_HAND = ("optimize", "verify", "bench", "check", "sweep")
"""Those that execute code and are no phase of a workflow, but may stand in one; what they print may be JSON."""


class LazyGroup(click.Group):
    """Loads a command's module when it is used, so that `--help` costs no imports of the rooms."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        import importlib

        command = importlib.import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kernelopt")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Finds faster GPU kernels for your models, proves each one, and publishes them."""
    if ctx.invoked_subcommand in BY_HAND:
        stop_commands(quiet=True)


def bug_report(error: BaseException) -> str:
    """Everything a maintainer needs, without secrets, ready to paste."""
    trace = "".join(traceback.format_exception(error))
    command = " ".join(Path(a).name if os.sep in a else a for a in sys.argv)
    return redact(
        "This is a bug in KernelOPT. Please open an issue with the text below.\n"
        "----------------------------------------------------------------\n"
        f"kernelopt {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: {command}\n\n{trace}"
        "----------------------------------------------------------------"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code (the console script passes it to `sys.exit`)."""
    try:
        result = group.main(args=list(argv) if argv is not None else None, prog_name="kernelopt", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        e.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. What was verified is in the run folder; nothing was published.", err=True)
        return 130
    except UserError as e:
        click.echo(redact(f"error: {e}"), err=True)
        return e.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as e:
        click.echo(bug_report(e), err=True)
        return 3


if __name__ == "__main__":
    sys.exit(main())
