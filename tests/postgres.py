"""A PostgreSQL server for a test, in a temporary folder and on a Unix socket; it is stopped at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def programs_of_server() -> Path | None:
    """Return the folder with initdb and postgres, which Debian installs outside the path, or None."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    return next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)


class Server:
    """A server that a test can stop and start."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.url = f"postgresql://tuner@/postgres?host={folder}"
        self._programs, self._folder = programs, folder
        self._process: subprocess.Popen[bytes] | None = None
        owner = _owner()
        self._options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            self._options |= {"user": owner.pw_uid, "group": owner.pw_gid}
        arguments = ["-D", str(folder / "data"), "-U", "tuner", "-A", "trust", "--no-sync"]
        subprocess.run([str(programs / "initdb"), *arguments], check=True, **self._options)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        arguments = ["-D", str(self._folder / "data"), "-k", str(self._folder)]
        settings = ["-c", "listen_addresses=", "-c", "fsync=off"]
        program = str(self._programs / "postgres")
        self._process = subprocess.Popen([program, *arguments, *settings], **self._options)
        ready = [str(self._programs / "pg_isready"), "-q", "-h", str(self._folder), "-U", "tuner", "-d", "postgres"]
        for _ in range(60):
            if subprocess.run([*ready, "-t", "1"], check=False).returncode == 0:
                break
            self._process.poll()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server: SIGTERM waits for sessions, SIGINT ends them, SIGQUIT stops it as in a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None


@contextmanager
def restartable(programs: Path) -> Iterator[Server]:
    """Run a server with an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    made = None
    try:
        made = Server(programs, folder)
        made.start()
        yield made
    finally:
        if made is not None:
            made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """Run a server, and yield the URL of an empty database."""
    with restartable(programs) as made:
        yield made.url


def _owner() -> pwd.struct_passwd | None:
    """Return the user to run as if this process is root, which PostgreSQL refuses, or None."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")
