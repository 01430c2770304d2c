"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import NoReturn, TextIO

import click

from tuner import __version__
from tuner.cli.commands.audit import audit
from tuner.cli.commands.calibrate import calibrate
from tuner.cli.commands.catalog import catalog
from tuner.cli.commands.compare import compare
from tuner.cli.commands.dashboard import dashboard
from tuner.cli.commands.doctor import doctor
from tuner.cli.commands.evaluate import evaluate
from tuner.cli.commands.explain import explain
from tuner.cli.commands.export import export
from tuner.cli.commands.flops import flops
from tuner.cli.commands.max_batch import max_batch
from tuner.cli.commands.measure import measure
from tuner.cli.commands.memory import memory
from tuner.cli.commands.optimize import optimize
from tuner.cli.commands.plan import plan
from tuner.cli.commands.report import report
from tuner.cli.commands.rules import rules
from tuner.cli.stdout import CheckedStdout, StdoutError
from tuner.core.errors import TunerError, TunerWarning
from tuner.core.text import shown

__all__ = ["app", "main"]

_INTERRUPTED = 130


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: tuner optimize --nodes 48 --budget 40",
)
@click.version_option(__version__, prog_name="tuner")
def app() -> None:
    """Find the topology that finishes training soonest.

    tuner chooses tensor, pipeline and data parallel degrees, micro batch, ZeRO stage, recompute and heads for training
    a large transformer with DeepSpeed and Megatron.
    """


_COMMANDS = (
    optimize,
    plan,
    explain,
    memory,
    max_batch,
    compare,
    flops,
    evaluate,
    calibrate,
    measure,
    audit,
    report,
    export,
    dashboard,
    doctor,
    rules,
    catalog,
)

for command in _COMMANDS:
    app.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `tuner` script: run a command, and turn what a user should read into one sentence and an exit code."""
    _open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name in another script must not end a command on a terminal that cannot show it.
        sys.stdout.reconfigure(errors="backslashreplace")
    if os.environ.get("_TUNER_COMPLETE"):
        app.main(prog_name="tuner")
    with warnings.catch_warnings():
        warnings.simplefilter("always", TunerWarning)
        warnings.showwarning = _note
        sys.exit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _open_streams() -> None:
    """Take what is written to a stream that our caller has closed, and its number, where no file of ours may stand."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # who reads it is told that there is none
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - until the process ends


def _run(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    try:
        with redirect_stdout(CheckedStdout(sys.stdout)) as told:
            with app.make_context("tuner", arguments) as context:
                app.invoke(context)
            told.flush()
    except click.exceptions.Exit as left:
        return left.exit_code
    except StdoutError as error:
        if isinstance(error.cause, BrokenPipeError):
            return _abandon_stdout(0)  # whoever read our output has gone, which is their right
        return _abandon_stdout(_failed(f"the output cannot be written: {error.cause.strerror or error.cause}.", 1))
    except OSError as error:
        what = "the system refused what the command needs" if error.filename is None else shown(str(error.filename))
        return _failed(f"{what}: {error.strerror or error}.", 1)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return _failed("interrupted.", _INTERRUPTED)
    except click.ClickException as error:
        return _failed(error.format_message(), error.exit_code)
    except TunerError as error:
        return _failed(str(error), error.exit_code)
    return 0


def _abandon_stdout(code: int) -> int:
    """Keep the interpreter from complaining, on its way out, about output that cannot be written any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _failed(sentence: str, code: int) -> int:
    _say(sentence)
    return code


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as a user should see it: without the place in the code that it comes from."""
    del category, filename, lineno, file, line
    _say(f"note: {message}")


def _say(sentence: str) -> None:
    """Print one line on stderr: what a user typed may hold line breaks and escapes."""
    line = "".join(mark if mark.isprintable() else " " for mark in sentence)
    print(f"tuner: {' '.join(line.split())}", file=sys.stderr)
