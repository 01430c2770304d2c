"""Damaged input for every reader: `python -m tests.fuzz --count 20000 --seed 1`.

A valid file of each kind is damaged in bytes and words, and given to its reader. The reader must return, or raise a
`TunerError` with a message of one line.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.conftest import ROOT
from tests.found_studies import study_in
from tuner.audit.api import audit_file
from tuner.audit.measure import measure
from tuner.core import catalog
from tuner.core.errors import TunerError, TunerWarning
from tuner.costmodel.site_file import read_site
from tuner.launch.local.hostfile import read_hostfile
from tuner.launch.slurm import parsing
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.logs import read_log
from tuner.logs.explanation import explained
from tuner.study.result import open_study
from tuner.study.store.recover import recover_study
from tuner.study.warm_start import calibrate
from tuner.tables import read_table

DATA: Final = ROOT / "tests" / "data"
STUDY: Final = "bloom-48"
NUMBERS: Final = (
    *(b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"9" * 40, b"1_000", b"0x10", b"\xc2\xb2", b"\xd9\xa3", b"0.0"),
    *(b"1e308", b"-0", b"007", b"1e-320", b"4.5", b"true", b"null", b'"8"', b"[8]", b"9" * 5000),
)
"""Replacements for a number."""

WORDS: Final = (
    *(b"", b" ", b"null", b"true", b"8", b"[]", b"{}", b'"', b"'", b"\\", b"\n", b"\r", b"\x00", b"\xff\xfe"),
    *(b"\xef\xbb\xbf", b"[", b"]", b"{", b"}", b"|", b",", b"=", b"#", b"\x1b[31m", b"%s", b"{0}", b"../.."),
    *(b"/dev/null", b"\xf0\x9f\x94\xa5", b"\xe2\x80\xa8", b"a" * 5000),
)
"""Replacements for any other word."""

_MARKDOWN: Final = b"""
| Nodes | Size | DP | TP | PP | MBS | GBS | Sec/it | TFLOPs | Notes |
|-------|------|----|----|----|-----|-----|--------|--------|-------|
| 48    | 181B | 4  | 8  | 12 | 2   | 2048 | 102.1 | 145    | ok    |
| 48    | 181B | 8  | 4  | 12 | 1   | 2048 | 143.9 | 103    | OOM   |
"""

MAX_BYTES: Final = 20_000
"""Maximum number of bytes used of a valid file; a longer one ends with a whole line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader, and valid input for it."""

    sound: Callable[[], list[bytes]]
    read: Callable[[Path, bytes], Any]


def damaged(sound: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one to four random changes."""
    content = bytearray(sound)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(content) + 1)
        end = min(len(content), start + int(chance.expovariate(1 / 20)))
        match chance.randrange(6):
            case 0:
                content[start:end] = chance.randbytes(end - start)
            case 1:
                del content[start:end]
            case 2:
                content[start:start] = content[start:end] * chance.choice((1, 3, 200))
            case 3:
                del content[start:]
            case _:
                words = list(re.finditer(rb"[\w.+-]+", bytes(content)))
                if words:
                    word = chance.choice(words)
                    content[word.start() : word.end()] = chance.choice(NUMBERS if word[0][-1:].isdigit() else WORDS)
    return bytes(content)


def _files(pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [_first_lines(path.read_bytes()) for path in sorted(ROOT.glob(pattern)) if path.is_file()]


def _first_lines(content: bytes) -> bytes:
    return content if len(content) <= MAX_BYTES else content[: content.rindex(b"\n", 0, MAX_BYTES) + 1]


def _written(read: Callable[[Path], Any], name: str) -> Callable[[Path, bytes], Any]:
    """Return a function that writes content to a file and reads that file."""

    def written(folder: Path, content: bytes) -> Any:
        (folder / name).write_bytes(content)
        return read(folder / name)

    return written


@cache
def _calibration() -> bytes:
    """Return the text of a calibration on a table."""
    from tuner.costmodel.site_file import site_text

    return site_text(calibrate(read_table(ROOT / "corpus" / "tr3m-1b3-v100.csv")), source="a table").encode()


@cache
def _study_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzz-")  # deleted with the process, as the cache keeps it until then


@cache
def _study() -> Path:
    return study_in(Path(_study_folder().name))


def _read_database(folder: Path, content: bytes) -> None:
    study = folder / "databases" / STUDY
    shutil.rmtree(study, ignore_errors=True)
    study.mkdir(parents=True)
    (study / "study.db").write_bytes(content)
    open_study(STUDY, runs=study.parent)


def _recover(folder: Path, content: bytes) -> None:
    study = folder / STUDY
    if not study.exists():
        shutil.copytree(_study() / STUDY, study)
    (study / "study.db").unlink(missing_ok=True)
    job = sorted((study / "jobs").iterdir())[0]
    target = job / "job.json" if content.startswith(b"J") else study / "study.json"
    kept = target.read_bytes()
    try:
        target.write_bytes(content[1:])
        recover_study(STUDY, runs=folder)
    finally:
        target.write_bytes(kept)


def _job_files() -> list[bytes]:
    jobs = sorted((_study() / STUDY / "jobs").iterdir())
    return [b"J" + (jobs[0] / "job.json").read_bytes(), b"S" + (_study() / STUDY / "study.json").read_bytes()]


def _read_text_of_slurm(_folder: Path, content: bytes) -> None:
    text = content.decode(errors="replace")
    for row in (*parsing.queue_rows(text), *parsing.accounting_rows(text)):
        row.job_state  # noqa: B018 - a property that reads
        parsing.why_never_starts(row.reason)
        parsing.waiting_reason(row)
    for read in (parsing.printed_job_id, parsing.refusal, parsing.unreachable, parsing.failed_nodes):
        read(text)
    parsing.largest_partition(parsing.partitions(text), ["batch"])


def _slurm_output() -> list[bytes]:
    rows = [
        parsing.SEPARATOR.join(("12", "PENDING", "", "QOSMaxJobsPerUserLimit", "tuner-1")),
        parsing.SEPARATOR.join(("13", "RUNNING", "n[1-2,7]", "None", "tuner-2")),
    ]
    texts = (
        "\n".join(rows),
        "12|tuner-1|CANCELLED by 1000|n[1-2]\n13|tuner|2|FAILED|None assigned\n",
        "banner\nSubmitted batch job 4711\n",
        "4711;cluster\n",
        "n1|idle|none\nn2|down*|Not responding\nn3|drained|ECC\n",
        "batch|up|4\nlong|down|2\nbatch|up|3\n",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
    )
    return [text.encode() for text in texts]


def _read_log(path: Path) -> None:
    measure(path)


def _explain_log(_folder: Path, content: bytes) -> None:
    lines = content.decode(errors="replace").splitlines()
    read_log(lines)
    explained(lines)


TARGETS: Final[dict[str, Target]] = {
    "log": Target(sound=_files("tests/data/logs/*.log"), read=_written(_read_log, "log")),
    "log, explained": Target(sound=_files("tests/data/logs/*.log"), read=_explain_log),
    "table": Target(sound=_files("corpus/**/*.csv"), read=_written(read_table, "table.csv")),
    "table in Markdown": Target(sound=lambda: [_MARKDOWN], read=_written(read_table, "table.md")),
    "table, audited": Target(sound=_files("corpus/*.csv"), read=_written(audit_file, "audited.csv")),
    "config.json": Target(
        sound=_files("tests/data/huggingface/[a-z]*-*.json"),
        read=_written(lambda path: catalog.model(str(path)), "config.json"),
    ),
    "model": Target(
        sound=lambda: [b"layers = 24\nhidden = 2048\nheads = 16\nvocab = 50257\nseq = 2048\nffn = 8192\n"],
        read=_written(lambda path: catalog.model(str(path)), "model.toml"),
    ),
    "cluster": Target(
        sound=lambda: [b'nodes = 4\ngpus_per_node = 8\ngpu = "A100-80GB-SXM"\n'],
        read=_written(lambda path: catalog.cluster(str(path)), "cluster.toml"),
    ),
    "calibration": Target(sound=lambda: [_calibration()], read=_written(read_site, "site.toml")),
    "site profile": Target(
        sound=lambda: [re.sub(rb"(?m)^# ?(\w+ *=)", rb"\1", (ROOT / "docs" / "slurm-site.toml").read_bytes())],
        read=_written(SiteProfile.read, "profile.toml"),
    ),
    "hostfile": Target(
        sound=lambda: [b"# nodes\nnode-1 slots=8\nnode-2 slots=8\n10.0.0.3 slots=4\n"],
        read=_written(read_hostfile, "hosts"),
    ),
    "Slurm's output": Target(sound=_slurm_output, read=_read_text_of_slurm),
    "study.db": Target(sound=lambda: [(_study() / STUDY / "study.db").read_bytes()], read=_read_database),
    "files of jobs": Target(sound=_job_files, read=_recover),
}
SLOW: Final = {"study.db": 20, "files of jobs": 20, "table, audited": 4, "calibration": 2}
"""Slow readers, with the factor by which they get fewer inputs."""


def failures(count: int, seed: int) -> Iterator[tuple[str, bytes, str]]:
    """Yield each input on which its reader fails: the kind, the bytes, and the traceback or message."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    shares = {name: 1 / SLOW.get(name, 1) for name in TARGETS}
    kinds = chance.choices(list(shares), list(shares.values()), k=count)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for name in kinds:
            target = TARGETS[name]
            content = damaged(chance.choice(target.sound()), chance)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", TunerWarning)
                    target.read(Path(folder), content)
            except TunerError as error:
                if len(str(error).splitlines()) != 1:
                    yield name, content, f"a message of several lines: {error!s}"
            except Exception:
                yield name, content, traceback.format_exc()


def main() -> None:
    """Report failures by kind and by the line that raised."""
    parser = argparse.ArgumentParser(description="Damaged input for every reader.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    for name, content, text in failures(given.count, given.seed):
        last = text.strip().splitlines()[-1]
        place = re.findall(r'tuner/[\w/]+\.py", line \d+', text)
        kind = f"{name}: {last} ({place[-1] if place else 'message'})"
        if not found[kind]:
            sys.stdout.write(f"{kind}\n{content[:300]!r}\n")
        found[kind] += 1
    for kind, times in found.most_common():
        sys.stdout.write(f"{times:6} {kind}\n")
    sys.stdout.write(f"{given.count:,} inputs, {sum(found.values()):,} failures\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
