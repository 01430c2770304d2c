"""Each format supports every property of a run or refuses it by name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.export.test_export import bloom
from tuner.core.errors import InputError
from tuner.export.api import default_format
from tuner.export.bundle import FORMATS, format_of
from tuner.export.formats import ExportOptions, Format
from tuner.export.identity import PROPERTIES, uncovered


def test_properties_cover_every_field_of_a_run() -> None:
    assert list(uncovered()) == []


@pytest.mark.parametrize("one", FORMATS.values(), ids=lambda one: one.name)
def test_a_format_covers_every_property(one: Format) -> None:
    treatments = one.treatments(ExportOptions())
    assert set(treatments) == set(PROPERTIES)
    assert all(treatment.by or treatment.only for treatment in treatments.values())


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_format_that_omits_a_property_refuses_every_export(name: str) -> None:
    complete = FORMATS["slurm"]
    treatments = {key: value for key, value in complete.treatments(ExportOptions()).items() if key != name}
    forgetful = replace(complete, treatments=lambda _: treatments)
    with pytest.raises(InputError, match="does not say how it treats it"):
        forgetful.check(bloom(), ExportOptions())


@pytest.mark.parametrize("name", FORMATS)
def test_unknown_properties_are_refused_by_every_format_without_a_command(name: str) -> None:
    run = bloom("tp8-pp12-dp4-mbs2-z1", model="bloom-14336x72")
    unclear = replace(run.workload.model, not_understood=("frobnication=3",))
    run = replace(run, workload=replace(run.workload, model=unclear))
    if name != "accelerate":  # starts programs of one's own alone
        with pytest.raises(InputError, match="tuner does not understand frobnication=3 of bloom-14336x72") as refused:
            FORMATS[name].check(run, ExportOptions())
        able = [one.name for one in FORMATS.values() if one.runs_command and one.name != "accelerate"]
        assert all(one in str(refused.value).partition("choose --format ")[2] for one in able)
    if FORMATS[name].runs_command:
        assert "not_understood" not in FORMATS[name].refused(run, ExportOptions(command="train {key}"))


def test_another_topology_is_proposed_unless_the_model_is_the_reason() -> None:
    run = bloom("tp1-pp1-dp8-mbs4-z2", model="tiny", nodes=1, global_batch=64, precision="bf16")
    with pytest.raises(InputError, match="; export another topology or choose another --format"):
        FORMATS["megatron-core"].check(run, ExportOptions())
    model = replace(run.workload.model, logit_softcap=30.0)
    other = replace(run, topology=replace(run.topology, zero=1), workload=replace(run.workload, model=model))
    with pytest.raises(InputError, match="; choose another --format"):
        FORMATS["megatron-core"].check(other, ExportOptions())


def test_aliases_name_their_format() -> None:
    assert format_of("megatron-lm").name == "megatron-core"


@pytest.mark.parametrize(
    ("framework", "trainer", "name"),
    [
        ("megatron-core", None, "megatron-core"),
        ("megatron-core", "megatron-lm", "slurm"),
        ("megatron-core", "nemo", "slurm"),
        ("torchtitan", "torchtitan", "slurm"),
        ("fsdp2", "accelerate", "accelerate"),
        ("deepspeed", "hf", "slurm"),
        (None, None, "slurm"),
    ],
)
def test_a_study_of_the_users_trainer_exports_its_command(framework: Any, trainer: str | None, name: str) -> None:
    """Other formats would train with another learning rate, schedule and optimizer."""
    workload = SimpleNamespace(framework=framework)
    study: Any = SimpleNamespace(settings={"trainer": trainer}, setting=lambda _: (workload, None))
    assert default_format(study, cast("Any", None)) == name
