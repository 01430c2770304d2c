"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from tuner import __version__
from tuner.cli.catalog import catalog
from tuner.cli.explain import explain
from tuner.cli.plan import plan
from tuner.cli.rules import rules
from tuner.errors import TunerError

__all__ = ["app", "main"]

_INTERRUPTED = 130


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: tuner plan --nodes 48",
)
@click.version_option(__version__, prog_name="tuner")
def app() -> None:
    """Find the topology that finishes training soonest.

    tuner chooses tensor, pipeline and data parallel degrees, micro batch, ZeRO stage, recompute and heads for training
    a large transformer with DeepSpeed and Megatron.
    """


for command in (plan, explain, rules, catalog):
    app.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `tuner` script: run a command, and turn what a user should read into one sentence and an exit code."""
    try:
        code = app(args=arguments, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from complaining about it on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (KeyboardInterrupt, click.exceptions.Abort):
        code = _failed("interrupted.", _INTERRUPTED)
    except click.ClickException as error:
        code = _failed(error.format_message(), error.exit_code)
    except TunerError as error:
        code = _failed(str(error), error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _failed(sentence: str, code: int) -> int:
    print(f"tuner: {sentence}", file=sys.stderr)
    return code
