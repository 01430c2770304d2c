"""Files are written whole or stay as they were, whatever stands in their place."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.disks import small_disk
from tests.found_studies import study_in
from tuner.core.atomic_write import RUNNABLE, write_files, write_whole
from tuner.core.errors import DiskFull, InputError

TABLE = "corpus/enoki-h100.csv"


def test_a_file_that_is_there_keeps_its_permissions_and_a_link_its_target(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    write_whole(link, "new")
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)
    write_whole(tmp_path / "script", "#!/bin/sh\n", mode=RUNNABLE)
    assert (tmp_path / "script").stat().st_mode & 0o777 == RUNNABLE
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link", "script"]


def test_what_is_no_file_is_written_into_and_stays_what_it_is(tmp_path: Path, run: Run) -> None:
    """A pipe here; as root a rename would put a file in the place of /dev/null."""
    pipe, heard = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    listener = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    listener.start()
    assert run("calibrate", TABLE, "-o", str(pipe)).code == 0
    listener.join(60)
    assert pipe.is_fifo()
    assert heard[0].startswith("# Calibration file of tuner;")
    before = Path("/dev/null").stat().st_rdev
    write_whole(Path("/dev/null"), "nothing")
    assert Path("/dev/null").stat().st_rdev == before


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    long = tmp_path / ("x" * 255)  # a longer name, such as its temporary one, no file system has
    with pytest.raises(OSError, match=os.strerror(errno.ENAMETOOLONG)):
        write_whole(long, "new")
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, "new")
    assert file.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_files_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    """On a disk that is full after the first of them; what was there before stays."""
    with small_disk(tmp_path / "disk", "64k") as disk:
        write_files(disk / "report", {"report.md": "old"})
        with pytest.raises(DiskFull, match=r"plots/a\.svg cannot be written: No space left on device; make room there"):
            write_files(disk / "report", {"report.md": "new", "plots/a.svg": "x" * 100_000})
        left = [path.relative_to(disk).as_posix() for path in disk.rglob("*") if path.is_file()]
        assert left == ["report/report.md"]
        assert (disk / "report" / "report.md").read_text() == "old"


def test_a_file_above_the_limit_of_its_size_has_a_remedy(tmp_path: Path) -> None:
    """A process with `ulimit -f 1` may write 1 KiB, and leaves nothing behind."""
    code = (
        "import resource, pathlib, tuner.core.atomic_write as writing\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        "print(writing.file_size_limit())\n"
        f"writing.write_output(pathlib.Path({str(tmp_path / 'file')!r}), 'x' * 2000)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout == "1024\n"
    assert ended.stderr.endswith("cannot be written: File too large; raise the limit of file sizes (ulimit -f).\n")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_to_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: Not a directory; choose a folder with -o DIR\.$"):
        write_files(tmp_path / "file" / "folder", {"report.md": "new"})
    assert DiskFull.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("memory", "--frozen", "7b"), "--export"),
        (("compare", "--model", "gpt-1.3b", "--gpu", "H100-80GB-SXM", "--framework", "fsdp2"), "--export"),
        (("export", "bloom-48"), "-o"),
        (("report", "bloom-48"), "-o"),
    ],
)
def test_a_file_in_place_of_a_folder_is_named_with_the_option_of_the_command(
    arguments: tuple[str, ...], option: str, tmp_path: Path, run: Run
) -> None:
    """Nothing else is printed, such as the table of flags of an export."""
    file = tmp_path / "file"
    file.touch()
    runs = ("--runs", str(study_in(tmp_path / "runs"))) * (option == "-o")
    said = run(*arguments, *runs, option, str(file))
    assert (said.code, said.out) == (2, "")
    assert re.fullmatch(
        rf"tuner: \S+ cannot be written: {file} is not a folder; choose a folder with {option} DIR\.\n", said.err
    )


@pytest.mark.parametrize(("command", "name"), [("export", "README.md"), ("report", "measurements.csv")])
def test_files_that_tuner_did_not_write_are_not_replaced(command: str, name: str, tmp_path: Path, run: Run) -> None:
    """A folder of an earlier export or report is written to again."""
    runs, out = study_in(tmp_path / "runs"), tmp_path / "project"
    out.mkdir()
    (out / name).write_text("mine")
    said = run(command, "bloom-48", "--runs", str(runs), "-o", str(out))
    assert (said.code, f"{name} was not written by tuner" in said.err) == (2, True)
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_text() == "mine"
    (out / name).unlink()
    assert [run(command, "bloom-48", "--runs", str(runs), "-o", str(out)).code for _ in range(2)] == [0, 0]
