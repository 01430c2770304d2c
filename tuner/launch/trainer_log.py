"""The file of `--log`, which a trainer writes and a link in the job's folder names."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

from tuner.core.errors import LaunchError
from tuner.launch.log_tail import TRAINER_LOG


def link_log(folder: Path, log: Path) -> None:
    """Link a job's log into its folder; raise `LaunchError` if it cannot be written or would replace another file.

    A log that jobs of this or another study beside it wrote is renamed first, and their links follow it. No other file
    is touched, because a wrong name may be that of any file.
    """
    try:
        if log.exists():
            if not log.is_file():
                raise LaunchError(f"--log {log} must name a file.")
            written = log.resolve()
            earlier = [link for link in _links_beside(folder) if link.resolve() == written]
            if not earlier:
                raise LaunchError(
                    f"--log {log} exists, and no job of a study in {folder.parents[2]} wrote it; move it away, or name "
                    "another file."
                )
            backups = (log.with_name(f"{log.name}.before-{number:04d}") for number in count())
            kept = log.rename(next(backup for backup in backups if not backup.exists())).resolve()
            for link in earlier:
                _point(link, kept)
        log.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(f"--log {log} cannot be used: {error.strerror or error}.") from None
    _point(folder / TRAINER_LOG, log.resolve())


def take_logs(study: Path) -> None:
    """Move the logs of a study's jobs into their folders, in place of the links, so that no other study finds them."""
    for link in study.glob(f"jobs/*/{TRAINER_LOG}"):
        if (log := link.resolve()).is_file():
            link.unlink()
            shutil.move(log, link)


def _links_beside(folder: Path) -> set[Path]:
    """Return the links of all jobs of the study and of those beside it, whose jobs are in folders of one name."""
    jobs = folder.parent
    return {*jobs.glob(f"*/{TRAINER_LOG}"), *jobs.parent.parent.glob(f"*/{jobs.name}/*/{TRAINER_LOG}")}


def _point(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
