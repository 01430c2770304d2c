"""Optuna Dashboard as a process of ours: on this machine alone, on a free port, gone when we are."""

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
from typing import Final

from tuner.core.errors import LaunchError, MissingDependency
from tuner.launch.machine import free_port

HOST: Final = "127.0.0.1"
PATIENCE: Final = 60.0
"""Seconds until the dashboard answers."""

GRACE: Final = 5.0
"""Seconds to end by itself."""

_PROGRAM: Final = "from optuna_dashboard._cli import main; main()"


class Dashboard:
    """A dashboard that answers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.url = f"http://{HOST}:{port}/dashboard/"

    def wait(self) -> int:
        """Until it ends; its exit code."""
        return self._process.wait()


@contextmanager
def dashboard(storage: str, artifacts: Path, *, port: int = 0) -> Iterator[Dashboard]:
    """The dashboard of a storage, ended with all its children on the way out."""
    if find_spec("optuna_dashboard") is None:
        raise MissingDependency("the dashboard is not installed: pip install 'tuner[dashboard]'.")
    artifacts.mkdir(parents=True, exist_ok=True)
    chosen = port or free_port(HOST)
    command = [sys.executable, "-c", _PROGRAM, storage, "--host", HOST, "--port", str(chosen), "--quiet"]
    process = subprocess.Popen(  # noqa: S603 - a fixed argument list
        [*command, "--artifact-dir", str(artifacts)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for(process, chosen)
        yield Dashboard(process, chosen)
    finally:
        _end(process)


def show(url: str) -> bool:
    """Open the browser where there is one: a terminal over ssh has none."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise LaunchError(f"the dashboard left with {process.returncode} before it answered; is port {port} free?")
        with socket.socket() as one:
            one.settimeout(1.0)
            if one.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise LaunchError(f"the dashboard did not answer on port {port} for {PATIENCE:g} s.")


def _end(process: subprocess.Popen[bytes]) -> None:
    """It leads a session of its own: its children are in its group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
