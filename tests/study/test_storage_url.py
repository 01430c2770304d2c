"""Passwords in storage URLs are never printed, in any spelling; a malformed URL is reported in one sentence."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tuner.core.errors import InputError, TunerError
from tuner.study.api import study_settings
from tuner.study.store.storage import open_storage
from tuner.study.store.storage_url import masked, without_secrets

needs_driver = pytest.mark.skipif(importlib.util.find_spec("psycopg") is None, reason="wants psycopg")

UNREACHABLE = (
    "postgresql://me:s3:cret@localhost:1/x",
    "postgresql://me:s3/cret@localhost:1/x",
    "postgresql://me:s3#cret@localhost:1/x",
    "postgresql://:s3cret@localhost:1/x",
    "postgresql+psycopg://me:s3cret@localhost:1/x",
    "postgresql://localhost:1/x?user=me&password=s3cret&sslmode=disable",
    "postgresql://me:s3%40cret@localhost:1/x?sslpassword=s3%20cret",
    "postgresql://localhost:1/x?options=-c%20password%3Ds3cret",
)
MALFORMED = (
    ("postgresql://me:s3@cret@localhost:1/x", "%40"),
    ("postgresql://me:s3cret@localhost:port/x", "with a number as port"),
    ("postgresql://me:s3cret@[::1/x", "is malformed"),
    ("sqlite:///x.db?timeout=soon", "has an option that cannot be used"),
    ("POSTGRESQL://me:s3cret@localhost/x", "is not a URL"),
    ("postgresql:/me:s3cret@localhost/x", "is not a URL"),
    ("postgresql//me:s3cret@localhost/x", "is not a URL"),
    ("foo://me:s3cret@localhost/x", "cannot be used"),
)


@needs_driver
@pytest.mark.parametrize("url", UNREACHABLE)
def test_no_spelling_of_a_password_is_printed(url: str, run: Run) -> None:
    """The error for an unreachable server contains the URL without the password, raw or decoded."""
    said = run("list", "--storage", url)
    assert said.code == 1, said.err
    assert "refused" in said.err
    assert "***" in said.err
    assert "cret" not in said.err


@needs_driver
@pytest.mark.parametrize(("url", "words"), MALFORMED)
def test_a_malformed_url_is_reported_without_the_password(
    url: str, words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A malformed URL exits with code 2 and one sentence, without the password."""
    monkeypatch.chdir(tmp_path)
    Path("x.db").touch()
    said = run("list", "--storage", url)
    assert said.code == 2, said.err
    assert words in said.err
    assert "s3" not in said.err
    assert "cret" not in said.err
    assert len(said.err.splitlines()) == 1


def test_a_password_in_a_drivers_message_is_masked() -> None:
    """The password is masked in a driver's message as well, as spelt and as decoded."""
    url = "postgresql://me:s3%20cret@db/x?password=hidden"
    message = without_secrets('missing "=" after "s3 cret" in "me:s3%20cret@db", password hidden', url)
    assert message == 'missing "=" after "***" in "me:***@db", password ***'
    assert without_secrets("connection to server failed", "postgresql://me:e@db/x") == "connection to server failed"


def test_other_parts_of_a_url_are_not_masked() -> None:
    """Host, socket folder, user and options of a URL are not masked."""
    for url in ("postgresql://tuner@/postgres?host=/tmp/pg", "sqlite:////data/study.db", "postgresql://db:5432/x"):
        assert masked(url) == url


def test_settings_do_not_show_the_storage() -> None:
    """The repr of the settings, which tracebacks and notebooks show, does not contain the storage URL."""
    settings = study_settings(model="gpt-1.3b", nodes=4, storage="postgresql://me:s3cret@db/x")
    assert "s3cret" not in repr(settings)


@pytest.mark.filterwarnings("ignore:Query string")
def test_an_empty_storage_is_named_without_its_options(run: Run, tmp_path: Path) -> None:
    """`tuner list` of an empty database prints the URL without its options."""
    (tmp_path / "x.db").touch()
    said = run("list", "--storage", f"sqlite:///{tmp_path}/x.db?mode=rwc&vfs_key=s3cret")
    assert "No studies in sqlite:///" in said.out
    assert "s3cret" not in said.out + said.err


@pytest.mark.parametrize(
    "url",
    [
        *("sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///:memory:?cache=shared"),
        *("sqlite+pysqlite:///:memory:", "sqlite:///file::memory:?uri=true", "sqlite:///file:x?mode=memory&uri=true"),
    ],
)
def test_no_spelling_of_a_database_in_memory_is_accepted(url: str) -> None:
    """It would lose the study."""
    with pytest.raises(InputError, match="is in memory and would lose the study"):
        open_storage(url, create=True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+asyncpg://host/s", "asynchronous driver, which Optuna does not support; write postgresql://"),
        ("postgresql+pg8000://host/s", "needs a driver that is not installed; pip install pg8000 beside tuner."),
    ],
)
def test_the_error_of_a_missing_driver_names_it(url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pg8000", None)
    with pytest.raises(TunerError, match=re.escape(message)):
        open_storage(url)


@pytest.mark.parametrize("command", [["list"], ["stop", "s"], ["report", "s"], ["evaluate", "s"]])
def test_reading_creates_no_database(command: list[str], run: Run, tmp_path: Path) -> None:
    """A mistyped file is named, not created."""
    said = run(*command, "--storage", f"sqlite:///{tmp_path}/typo.db")
    assert said.code == 2, said.err
    assert f"there is no database {tmp_path}/typo.db; check the path in --storage." in said.err
    said = run("optimize", "--model", "gpt-1.3b", "--nodes", "1", "--storage", f"sqlite:///{tmp_path}/no/x.db")
    missing = f"tuner: there is no folder {tmp_path}/no for the database; create it, or correct --storage.\n"
    assert (said.code, said.err) == (2, missing)
    assert list(tmp_path.iterdir()) == []
