"""A job's port is free, and the kernel gives it to nobody else."""

from __future__ import annotations

import socket

import pytest

from tuner.core import ports

LOCAL = "127.0.0.1"


def test_the_kernel_gives_the_port_to_nobody_else() -> None:
    first, last = ports._kernels_range()
    assert 0 < first < last < 1 << 16
    found = {ports.free_port(LOCAL) for _ in range(50)}
    assert len(found) > 40, "jobs that start at the same time have different ports"
    assert all(port >= 15_000 and not first <= port <= last for port in found)


@pytest.mark.parametrize("host", ["", LOCAL])
def test_a_port_in_use_is_not_chosen(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((host, ports.free_port(host)))
        taken = other.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", taken)
        monkeypatch.setattr(ports, "_kernels_range", lambda: (taken + 1, 65_535))
        assert ports.free_port(host) not in (0, taken)


def test_a_kernel_that_may_give_any_port_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_kernels_range", lambda: (1024, 65_535))
    assert ports.free_port(LOCAL) >= 1024


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(OSError, match=r"no port is free at 192\.0\.2\.1"):
        ports.free_port("192.0.2.1")
