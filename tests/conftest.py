from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from tests.workers import ranks
from tuner.cli import main
from tuner.space.build import space_for
from tuner.space.space import Space

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["ranks"]  # a fixture defined in tests/workers.py

settings.register_profile("tuner", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("tuner"), max_examples=100, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "tuner")

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Restore the default handling of Ctrl-C, which a shell's background jobs inherit as ignored, and line widths."""
    os.environ.pop("COLUMNS", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Said(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a tuner command in this process."""

    def run(*arguments: str) -> Said:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main(arguments)
        out, err = capfd.readouterr()
        code = left.value.code
        assert isinstance(code, int)
        return Said(code, out, err)

    return run


@pytest.fixture(scope="session", autouse=True)
def _migrations_read_once() -> Iterator[None]:
    """Let alembic read Optuna's migrations once, as reading them takes most of the time to open a new database."""
    from alembic.script import ScriptDirectory

    read, found = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def from_config(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location")
        if location not in found:
            found[location] = read(config)
        return found[location]

    with pytest.MonkeyPatch.context() as alembic:
        alembic.setattr(ScriptDirectory, "from_config", from_config)
        yield


@pytest.fixture(scope="session")
def default_space() -> Space:
    """The space of the default 48-node study."""
    return space_for()
