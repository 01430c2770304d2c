"""The command line: parse, call the Python API, print.

Each command imports what it needs when it runs, so that `tuner --help` stays fast.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Final, NoReturn, TextIO

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
from tuner.cli.commands.list import list_
from tuner.cli.commands.max_batch import max_batch
from tuner.cli.commands.measure import measure
from tuner.cli.commands.memory import memory
from tuner.cli.commands.optimize import optimize
from tuner.cli.commands.plan import plan
from tuner.cli.commands.recover import recover
from tuner.cli.commands.report import report
from tuner.cli.commands.rules import rules
from tuner.cli.commands.stop import stop
from tuner.cli.streams import CheckedStdout, LenientStderr, StdoutError
from tuner.core.errors import TunerError, TunerWarning
from tuner.core.text import either, shown

__all__ = ["app", "main"]

_INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""

_NUMBERS: Final = {"integer": "a whole number", "float": "a number"}
"""The words for click's types of numbers."""

_SECTIONS: Final[Mapping[str, tuple[click.Command, ...]]] = {
    "Search": (optimize, list_, stop, recover, report, export, dashboard),
    "Plan": (plan, explain, memory, max_batch, compare, flops),
    "Measure": (measure, evaluate, calibrate, audit),
    "Reference": (rules, catalog, doctor),
}
"""Commands by the section of `tuner --help` that lists them."""

_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("resume", "continue"), "repeat the 'tuner optimize' command that began a study to resume it"),
    **dict.fromkeys(("status", "ls", "ps"), "'tuner list' lists studies and their state"),
    **dict.fromkeys(("search", "run", "tune"), "'tuner optimize' starts a search"),
    **dict.fromkeys(("cancel", "kill"), "Ctrl-C ends a search; 'tuner stop' cancels jobs that it left running"),
    **dict.fromkeys(("models", "gpus", "clusters", "frameworks"), "'tuner catalog' lists what is known"),
}
"""What to do instead, by the name of a command that other tools have."""


class _SectionedGroup(click.Group):
    """A group whose help lists its commands by section."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command, or say what to do instead of one that other tools have."""
        if args[0] in _INSTEAD:
            raise click.UsageError(f"no such command '{args[0]}': {_INSTEAD[args[0]]}.", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one block per section, each command with its `short_help`."""
        del ctx
        names = [command.name or "" for commands in _SECTIONS.values() for command in commands]
        width = max(map(len, names))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{command.name:<{width}}", command.short_help or "") for command in commands])


@click.group(
    cls=_SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: tuner optimize --nodes 48 --budget 40",
)
@click.version_option(__version__, prog_name="tuner")
def app() -> None:
    """Find the parallelism topology that finishes training soonest.

    tuner searches tensor, pipeline, data, context and expert parallelism, micro-batch size, ZeRO stage and activation
    recompute for training a large transformer with Megatron-Core, DeepSpeed, FSDP2 or torchtitan.

    Run 'tuner COMMAND --help' for the options of a command.
    """


for _command in itertools.chain.from_iterable(_SECTIONS.values()):
    app.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the `tuner` script: a command, whose errors become one sentence on stderr and an exit code."""
    _open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a character shows its escape instead of failing.
        sys.stdout.reconfigure(errors="backslashreplace")
    if os.environ.get("_TUNER_COMPLETE"):
        app.main(prog_name="tuner")
    with warnings.catch_warnings():
        warnings.simplefilter("always", TunerWarning)
        warnings.showwarning = _print_warning
        with redirect_stderr(LenientStderr(sys.stderr)):
            code = _run(list(sys.argv[1:] if arguments is None else arguments))
        try:
            sys.stderr.flush()
        except OSError:
            _silence(sys.stderr)
        sys.exit(code)


def _open_streams() -> None:
    """Replace the streams that the caller closed, so that no file that tuner opens takes their descriptors."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - until the process ends


def _run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    try:
        with redirect_stdout(CheckedStdout(sys.stdout)) as stdout:
            with app.make_context("tuner", arguments) as context:
                app.invoke(context)
            stdout.flush()
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except StdoutError as error:
        if isinstance(error.cause, BrokenPipeError):
            return _abandon_stdout(0)  # the reader has closed the pipe, as `head` does
        return _abandon_stdout(_fail(f"cannot write the output: {error.cause.strerror or error.cause}.", 1))
    except OSError as error:
        unnamed = "the current folder" if isinstance(error, FileNotFoundError) else "a system call failed"
        subject = unnamed if error.filename is None else shown(str(error.filename))
        return _fail(f"{subject}: {error.strerror or error}.", 1)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return _fail("interrupted.", _INTERRUPTED)
    except click.UsageError as error:
        return _fail(_usage_message(error), error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except TunerError as error:
        return _fail(str(error), error.exit_code)
    return 0


def _usage_message(error: click.UsageError) -> str:
    """Return click's message with the command whose help explains it: `missing argument 'KEY'. Run 'tuner ...'.`

    What click calls a valid integer range is a whole number.
    """
    message = _unknown_option(error) if isinstance(error, click.NoSuchOption) else error.format_message()
    message = re.sub(r"a valid (integer|float)( range)?", lambda match: _NUMBERS[match[1]], message)
    message = message[:1].lower() + message[1:].rstrip()
    if not message.endswith((".", "?")):
        message += "."
    return f"{message} Run '{error.ctx.command_path} --help' for usage." if error.ctx else message


def _unknown_option(error: click.NoSuchOption) -> str:
    close = either(map(repr, error.possibilities or ()))
    return f"no such option '{error.option_name}'{f'; did you mean {close}?' if close else '.'}"


def _abandon_stdout(code: int) -> int:
    _silence(sys.stdout)
    return code


def _silence(stream: TextIO) -> None:
    """Silence the interpreter's own flush at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(message: str, code: int) -> int:
    _print_line(message)
    return code


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without the source line that Python adds."""
    del category, filename, lineno, file, line
    _print_line(f"warning: {message}")


def _print_line(message: str) -> None:
    """Print one line on stderr; line breaks and escapes that a user typed become blanks."""
    line = "".join(mark if mark.isprintable() else " " for mark in message)
    print(f"tuner: {' '.join(line.split())}", file=sys.stderr)
