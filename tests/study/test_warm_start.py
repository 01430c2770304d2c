"""A study that starts from the measurements of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.found_studies import study_in
from tuner.core.errors import InputError
from tuner.study.warm_start import calibration_from_study, existing


def test_a_calibration_has_every_measurement_of_the_study(tmp_path: Path) -> None:
    runs = study_in(tmp_path, "drifting")
    study = existing("drifting", runs=runs, storage=None)
    measured = sum(trial.measured for trial in study.trials())
    study.close()
    calibration = calibration_from_study("drifting", runs=runs, storage=None)
    assert len(calibration.residual) == measured > 5


def test_a_calibration_refers_to_the_final_speed_of_the_study(tmp_path: Path) -> None:
    """A calibration from a study with drift refers to its last speed period."""
    changed = calibration_from_study("drifting", runs=study_in(tmp_path, "drifting"), storage=None)
    steady = calibration_from_study("bloom-48", runs=study_in(tmp_path, "bloom-48"), storage=None)
    assert changed.period != ""
    assert steady.period == ""


def test_a_replayed_study_refers_to_its_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="replayed a table"):
        calibration_from_study("replayed", runs=study_in(tmp_path, "replayed"), storage=None)


def test_an_unknown_study_is_refused_with_the_existing_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bloom-48"):
        calibration_from_study("other", runs=study_in(tmp_path, "bloom-48"), storage=None)
