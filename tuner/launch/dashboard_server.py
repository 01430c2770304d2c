"""Run Optuna Dashboard as a child process that listens on localhost only and always ends with the tuner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import current_thread, main_thread
from typing import Final

from tuner.core.errors import LaunchError, MissingDependency
from tuner.core.ports import free_port

HOST: Final = "127.0.0.1"
START_TIMEOUT: Final = 60.0
"""Seconds until the dashboard must answer."""

KILL_DELAY: Final = 5.0
"""Seconds from SIGTERM to SIGKILL."""

_STORAGE: Final = "TUNER_DASHBOARD_STORAGE"
"""The variable that passes the storage URL: its password must not show on a command line."""

_PROGRAM: Final = f"""\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: end with the tuner, also when that is killed
sys.argv.insert(1, os.environ.pop({_STORAGE!r}))
from optuna_dashboard._cli import main
main()
"""


class Dashboard:
    """A running dashboard."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.url = f"http://{HOST}:{port}/dashboard/"

    def study_page(self, study_id: int) -> str:
        """Return the address of a study's page."""
        return f"{self.url}studies/{study_id}"

    def wait(self) -> int:
        """Wait until it exits, and return its exit code."""
        return self._process.wait()


@contextmanager
def dashboard(storage: str, artifacts: Path, *, port: int = 0) -> Iterator[Dashboard]:
    """Run the dashboard of a storage; end it with all its children on exit, SIGTERM included."""
    if find_spec("optuna_dashboard") is None:
        raise MissingDependency("the dashboard is not installed: pip install '.[dashboard]' in tuner's checkout.")
    artifacts.mkdir(parents=True, exist_ok=True)
    chosen = port or free_port(HOST)
    command = [sys.executable, "-c", _PROGRAM, "--host", HOST, "--port", str(chosen), "--quiet"]
    former = signal.signal(signal.SIGTERM, _exit_on_sigterm) if current_thread() is main_thread() else None
    process = subprocess.Popen(  # noqa: S603 - a fixed argument list
        [*command, "--artifact-dir", str(artifacts)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, _STORAGE: storage},
    )
    try:
        _wait_for(process, chosen)
        yield Dashboard(process, chosen)
    finally:
        _end(process)
        if former is not None:
            signal.signal(signal.SIGTERM, former)


def _exit_on_sigterm(_number: int, _frame: object) -> None:
    """Exit through an exception, so that started processes are ended."""
    raise SystemExit(128 + signal.SIGTERM)


def show(url: str) -> bool:
    """Open the browser; return False if there is none, as over ssh."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LaunchError(
                f"the dashboard exited with code {process.returncode} before it answered; is port {port} free?"
            )
        with socket.socket() as client:
            client.settimeout(1.0)
            if client.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise LaunchError(f"the dashboard did not answer on port {port} for {START_TIMEOUT:g} s.")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group, which includes its children."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=KILL_DELAY)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
