"""Logs from files and pipes: compressed, truncated, or of any length; files that are not logs are refused."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Run
from tuner.logs import read_log
from tuner.logs.files import log_lines

EXAMPLE = str(ROOT / "docs/example.log")
KEY = "tp8-pp12-dp4-mbs1-z1"


def document(run: Run, *arguments: str) -> dict[str, Any]:
    said = run("measure", *arguments, "--json")
    assert said.code == 0
    found: dict[str, Any] = json.loads(said.out)
    return found


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "log": bytes,
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_log_is_read_like_a_plain_one(kind: str, tmp_path: Path, run: Run) -> None:
    """The first bytes decide, not the file name."""
    (tmp_path / "job 1's log;").write_bytes(PACKED[kind](Path(EXAMPLE).read_bytes()))
    packed, plain = document(run, str(tmp_path / "job 1's log;"), KEY), document(run, EXAMPLE, KEY)
    assert {**packed, "log": ""} == {**plain, "log": ""}


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_a_truncated_compressed_log_is_read_as_far_as_possible(kind: str, tmp_path: Path, run: Run) -> None:
    """The file must have at least one complete block of its compression."""
    lines = [line for line in Path(EXAMPLE).read_text().splitlines() if line.startswith(" iteration ")]
    text = "\n".join(lines[1].replace(" 2/", f" {number}/") for number in range(2, 20_000)).encode()
    packed = PACKED[kind](text)
    (tmp_path / "cut").write_bytes(packed[: len(packed) * 3 // 4])
    said = run("measure", str(tmp_path / "cut"), "--json")
    assert said.code == 0
    assert said.err == f"tuner: warning: {tmp_path}/cut ends within its compressed data; the part before is read.\n"
    assert 0 < len(json.loads(said.out)["iterations"]) < 20_000


def test_standard_input_is_read() -> None:
    command = [sys.executable, "-m", "tuner", "measure", "-", KEY, "--json"]
    for text in (Path(EXAMPLE).read_bytes(), gzip.compress(Path(EXAMPLE).read_bytes())):
        said = subprocess.run(command, input=text, capture_output=True, check=False)
        assert said.returncode == 0, said.stderr
        assert json.loads(said.stdout)["measurement"]["sec_per_iter"] == 143.31


def test_a_log_is_read_incrementally(tmp_path: Path) -> None:
    """Each line is read before the next one arrives, and a file without line breaks is read in pieces."""
    (tmp_path / "long.log").write_bytes(b"x" * 3_000_000 + b"\n")
    assert [len(piece) for piece in log_lines(str(tmp_path / "long.log"))] == [2**20, 2**20, 3_000_001 - 2**21]
    first = next(log_lines(EXAMPLE))
    assert first.startswith("synthetic log")


UNREADABLE = {
    "empty": (b"", " is empty; give the log of a job that has run."),
    "nothing but zeros": (b"\0" * 5000, " is empty; give the log of a job that has run."),
    "a checkpoint": (b"PK\x03\x04 archive/data.pkl", " is not text; give a training log, plain or compressed"),
    "a core dump": (bytes(range(256)) * 20, " is not text; give a training log, plain or compressed"),
    "a broken archive": (b"\x1f\x8b\x08\x00broken", " cannot be decompressed: "),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_is_no_log_exits_with_2_and_one_sentence(kind: str, tmp_path: Path, run: Run) -> None:
    content, sentence = UNREADABLE[kind]
    (tmp_path / "x").write_bytes(content)
    said = run("measure", str(tmp_path / "x"))
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err
    assert said.err.count("\n") == 1


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="from 3.14 on Python reads zstd itself")
def test_an_unsupported_compression_exits_with_3_and_the_remedy(tmp_path: Path, run: Run) -> None:
    (tmp_path / "x.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
    said = run("measure", str(tmp_path / "x.zst"))
    assert said.code == 3
    assert f"or write zstd -dc {tmp_path}/x.zst | tuner measure -" in said.err


def test_reading_a_log_imports_no_heavy_packages() -> None:
    """The reader runs inside jobs, next to torch."""
    program = (
        "import sys\nfrom tuner.logs import read_log\nfrom tuner.logs.files import log_lines\n"
        f"assert read_log(log_lines({EXAMPLE!r})).runs\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'pandas', 'click')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert read_log([]).runs == ()
