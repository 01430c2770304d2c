"""`tuner` and `python -m tuner`: the command line, and a Ctrl-C from before it listens until after it is through."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; all that takes a while is imported here, where Ctrl-C is caught."""
    try:
        from tuner.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("tuner: interrupted.\n")
        raise SystemExit(130) from None
    finally:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said, and only the interpreter is left to end


if __name__ == "__main__":
    main()
