"""The port at which the processes of a job meet."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOWEST: Final = 15_000
"""Above the ports of most services."""

_TRIES: Final = 100


def free_port(host: str) -> int:
    """Return a port that is free at an address of this machine; an empty address stands for all.

    Where possible, it is one that the kernel gives to no process asking for any port, such as a rank of another job, so
    that it is still free when the job has started.
    """
    first, last = _kernels_range()
    others = [*range(_LOWEST, first), *range(last + 1, 1 << 16)]
    for port in [*secrets.SystemRandom().sample(others, min(_TRIES, len(others))), 0]:
        with suppress(OSError), socket.socket() as probe:
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    raise OSError(f"no port is free at {host or 'this machine'}")


def _kernels_range() -> tuple[int, int]:
    """Return the first and last port that the kernel gives to processes asking for any."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 32_768, 65_535
