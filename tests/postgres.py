"""A PostgreSQL of a test's own: a cluster in a temporary folder, on a unix socket, stopped again at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def programs() -> Path | None:
    """The folder with initdb and postgres; Debian keeps them off the path."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    return next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """The URL of an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    owner = _owner()
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data, user = folder / "data", {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    process = None
    try:
        subprocess.run(
            [str(programs / "initdb"), "-D", str(data), "-U", "tuner", "-A", "trust", "--no-sync"],
            check=True,
            **user,
            **quiet,
        )  # type: ignore[call-overload]
        process = subprocess.Popen(
            [
                str(programs / "postgres"),
                "-D",
                str(data),
                "-k",
                str(folder),
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=off",
            ],
            **user,
            **quiet,
        )  # type: ignore[call-overload]
        ready = [str(programs / "pg_isready"), "-q", "-h", str(folder), "-U", "tuner", "-d", "postgres", "-t", "1"]
        for _ in range(60):
            if subprocess.run(ready, check=False).returncode == 0:
                break
            process.poll()
        yield f"postgresql://tuner@/postgres?host={folder}"
    finally:
        if process is not None:
            process.terminate()
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> pwd.struct_passwd | None:
    """Whom it runs as: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")
