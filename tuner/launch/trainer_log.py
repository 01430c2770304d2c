"""The file of `--log`, which a trainer writes and a link in the job's folder names."""

from __future__ import annotations

import warnings
from itertools import count
from pathlib import Path

from tuner.core.errors import LaunchError, TunerWarning
from tuner.launch.log_tail import TRAINER_LOG


def link_log(folder: Path, log: Path) -> None:
    """Link a job's log into its folder, after renaming an existing file; raise `LaunchError` if it cannot be written.

    A folder, or a device, is not renamed. Earlier jobs of the study that wrote the same file keep a link to it; the
    name of any other file is in a warning.
    """
    try:
        if log.exists():
            if not log.is_file():
                raise LaunchError(f"--log {log} must name a file.")
            backups = (log.with_name(f"{log.name}.before-{number:04d}") for number in count())
            written = log.resolve()
            earlier = [path for path in folder.parent.glob(f"*/{TRAINER_LOG}") if path.resolve() == written]
            kept = log.rename(next(backup for backup in backups if not backup.exists())).resolve()
            for other in earlier:
                _point(other, kept)
            if not earlier:
                warnings.warn(TunerWarning(f"{log}, the file of --log, existed; it is now {kept.name}."), stacklevel=2)
        log.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(f"--log {log} cannot be used: {error.strerror or error}.") from None
    _point(folder / TRAINER_LOG, log.resolve())


def _point(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
