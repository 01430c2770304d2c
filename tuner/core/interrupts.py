"""Handle Ctrl-C safely.

Python raises KeyboardInterrupt wherever the main thread is. In a library's transaction it leaves a broken connection
and a traceback; in a finalizer it is printed and lost. So Ctrl-C is deferred until a transaction has ended, and
remembered.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class _Interrupts:
    """The state of Ctrl-C in this process."""

    received: bool = False
    ignored: bool = False
    deferred: bool = False
    """Whether one waits for the end of a transaction."""
    transactions: int = 0
    """The nesting depth of the main thread."""


_interrupts = _Interrupts()


@contextmanager
def remember_interrupts() -> Iterator[None]:
    """Remember every Ctrl-C in this block, in addition to its normal effect."""
    before = signal.getsignal(signal.SIGINT)
    _forget()
    if not callable(before) or not _in_main_thread():
        yield  # it is ignored, or another thread handles it
        return
    handler = before

    def remember(number: int, frame: FrameType | None) -> None:
        _interrupts.deferred = _interrupts.transactions > 0 and not _interrupts.received  # a second one does not wait
        _interrupts.received = True
        if not _interrupts.deferred and not _interrupts.ignored:
            handler(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _forget()


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Raise the KeyboardInterrupt of a Ctrl-C within only at the end."""
    if not _in_main_thread():
        yield
        return
    _interrupts.transactions += 1
    try:
        yield
    finally:
        _interrupts.transactions -= 1
        if _interrupts.deferred and not _interrupts.transactions:
            _interrupts.deferred = False
            if not _interrupts.ignored:
                raise KeyboardInterrupt


def ignore_interrupts() -> None:
    """Let Ctrl-C do nothing until the end of `remember_interrupts`."""
    _interrupts.ignored = True


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed within `remember_interrupts`."""
    return _interrupts.received


def raise_lost_interrupt() -> None:
    """Raise the KeyboardInterrupt of a Ctrl-C again."""
    if _interrupts.received:
        raise KeyboardInterrupt


def _forget() -> None:
    _interrupts.received = _interrupts.ignored = _interrupts.deferred = False


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
