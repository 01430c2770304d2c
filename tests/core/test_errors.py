"""Errors that a worker process raises reach the process that waits for it."""

from __future__ import annotations

import pickle

import pytest

from tuner.core import errors
from tuner.core.errors import TunerError, UnknownName

MADE = [
    *(kind("the disk is full.") for kind in vars(errors).values() if kind in TunerError.__subclasses__()),
    UnknownName("model", "lama-7b", ["llama-7b", "gpt2"]),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_between_processes(error: TunerError) -> None:
    """An error has the same type, sentence and exit code after it was pickled."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this test
    assert (type(again), str(again), again.exit_code) == (type(error), str(error), error.exit_code)
