"""A study that starts from the measurements of another one."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.found_studies import study_in
from tuner.core.errors import InputError, TunerWarning
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.site_file import site_of
from tuner.space.build import space_for
from tuner.study.api import study_settings
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
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


def test_a_study_keeps_its_calibration_until_it_is_given_another_one(tmp_path: Path) -> None:
    """Without one it continues with the stored one, and a warning names the change to another one."""
    first = calibration_from_study("bloom-48", runs=study_in(tmp_path, "bloom-48"), storage=None)
    second = calibration_from_study("drifting", runs=study_in(tmp_path, "drifting"), storage=None)
    space = space_for(model="gpt-1.3b", nodes=1, settings=["tp=1", "recompute=none"])
    settings = StudySettings(space=space, limits=Limits(budget=1), study="s", runs=tmp_path / "runs")

    def opened(calibration: Calibration | None) -> tuple[str, Calibration | None]:
        with open_loop(replace(settings, calibration=calibration)) as loop:
            return loop.store.attributes["site"], loop.settings.calibration

    with warnings.catch_warnings():
        warnings.simplefilter("error", TunerWarning)
        stored, _ = opened(first)
        assert stored
        again, kept = opened(None)
        assert again == stored
        assert kept is not None
        assert kept.site == site_of(stored, "s").site
        assert opened(first)[0] == stored
    with pytest.warns(TunerWarning, match="study s continues with a different calibration"):
        assert opened(second)[0] != stored


def test_a_study_with_trials_warns_of_its_first_calibration(tmp_path: Path) -> None:
    """One without trials has no ranking that could change; the new calibration is kept and not warned of again."""
    known = calibration_from_study("bloom-48", runs=study_in(tmp_path, "bloom-48"), storage=None)
    space = space_for(model="gpt-1.3b", nodes=1, settings=["tp=1", "recompute=none"])
    settings = StudySettings(space=space, limits=Limits(budget=1), study="s", runs=tmp_path / "runs")
    with open_loop(settings) as loop:
        loop.run()
        assert loop.store.trials()
    with (
        pytest.warns(TunerWarning, match="study s continues with a calibration that it began without and keeps it"),
        open_loop(replace(settings, calibration=known)),
    ):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error", TunerWarning)
        for calibration in (known, None):
            with open_loop(replace(settings, calibration=calibration)) as loop:
                assert loop.settings.calibration is not None
        with open_loop(replace(settings, study="empty")):
            pass
        with open_loop(replace(settings, study="empty", calibration=known)) as loop:
            assert not loop.store.trials()


def test_a_replayed_study_refers_to_its_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="replayed a table"):
        calibration_from_study("replayed", runs=study_in(tmp_path, "replayed"), storage=None)


def test_an_unknown_study_is_refused_with_the_existing_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bloom-48"):
        calibration_from_study("other", runs=study_in(tmp_path, "bloom-48"), storage=None)


def test_a_study_that_starts_from_times_in_another_unit_warns(tmp_path: Path) -> None:
    """Seconds that are really milliseconds take a thousand times the estimate and would mislead the search."""
    file = tmp_path / "t.csv"
    header = "framework,gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,dp,mbs,gbs,sec_per_iter"
    said = r"t.csv: measured times are [0-9,]+ times the estimates \(median\): check their unit with tuner audit\."
    for seconds, warned in ((1, nullcontext()), (1000, pytest.warns(TunerWarning, match=said))):
        file.write_text(f"{header}\nmegatron-core,A100-80GB-SXM,8,1,24,2048,16,8,1,1,4,64,{seconds}\n")
        with warned:
            settings = study_settings(start_from=file, model="gpt-1.3b", gpu="A100-80GB-SXM", nodes=1)
        assert settings.calibration is not None


def test_a_replay_of_times_in_another_unit_warns(tmp_path: Path) -> None:
    """The search's own times and training lengths would be a thousand times too long."""
    file = tmp_path / "t.csv"
    header = "group,gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,dp,mbs,gbs,sec_per_iter"
    row = "A100-80GB-SXM,8,1,24,2048,16,8,1,1,4,64"
    file.write_text(f"{header}\nms,{row},1000\ns,{row},1\n")
    with pytest.warns(TunerWarning, match="t.csv: measured times are"):
        study_settings(table=file, group="ms")
    study_settings(table=file, group="s")
