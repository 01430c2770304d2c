"""A Ctrl-C whose KeyboardInterrupt is lost is not."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import pytest

from tuner.core.interrupts import (
    defer_interrupts,
    ignore_interrupts,
    raise_lost_interrupt,
    remember_interrupts,
    was_interrupted,
)


def test_a_lost_interrupt_is_raised_again() -> None:
    with remember_interrupts():
        raise_lost_interrupt()
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert was_interrupted()
        with pytest.raises(KeyboardInterrupt):
            raise_lost_interrupt()
    assert not was_interrupted()
    with remember_interrupts():
        assert not was_interrupted()


def test_ctrl_c_may_be_ignored_until_the_end() -> None:
    with remember_interrupts():
        ignore_interrupts()
        signal.raise_signal(signal.SIGINT)
        assert was_interrupted()
    with remember_interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def transaction(steps: list[str], presses: int, error: type[Exception] | None = None) -> None:
    """A transaction within another, in which Ctrl-C is pressed."""
    with defer_interrupts():
        with defer_interrupts():
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
            steps.append("inner")
        if error is not None:
            raise error
        steps.append("outer")


@pytest.mark.parametrize(("presses", "reached"), [(1, ["inner", "outer"]), (2, [])])
def test_ctrl_c_in_a_transaction_waits_for_its_end_and_a_second_one_does_not(presses: int, reached: list[str]) -> None:
    steps: list[str] = []
    with remember_interrupts():
        with pytest.raises(KeyboardInterrupt):
            transaction(steps, presses)
        assert steps == reached
        transaction(steps, 0)


def test_ctrl_c_wins_over_the_error_of_a_transaction() -> None:
    with remember_interrupts(), pytest.raises(KeyboardInterrupt):
        transaction([], 1, ZeroDivisionError)


def test_ctrl_c_that_is_ignored_is_not_deferred() -> None:
    with remember_interrupts():
        ignore_interrupts()
        with defer_interrupts():
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler])
def test_the_handler_is_what_it_was_afterwards(handler: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, handler)
    with suppress(ZeroDivisionError), remember_interrupts():
        assert (signal.getsignal(signal.SIGINT) is handler) is not callable(handler)
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is handler


def test_another_thread_leaves_signals_alone() -> None:
    seen: list[object] = []

    def look() -> None:
        with remember_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
