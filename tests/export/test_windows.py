"""A sliding window is exported to Megatron-LM and Bridge in the layers that have it, whichever they are."""

from __future__ import annotations

import ast
import shlex
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.export.megatron_namespace import asked, assert_exact_or_refused, parsed, trained
from tests.export.test_export import exported
from tests.export.test_megatron_core import hugging_face_run
from tuner.export.bridge import MEGATRON_BRIDGE
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.export.production import ProductionRun


def windowed(layers: int, start: int, skip: int) -> ProductionRun:
    """Return a run of a Qwen with so many layers, and a window from one on but in every so many."""
    run = hugging_face_run("qwen2-0.5b")
    window: dict[str, Any] = {"sliding_window": 4096, "window_start": start, "window_skip": skip, "seq": 8192}
    model = replace(run.workload.model, layers=layers, **window)
    return replace(run, workload=replace(run.workload, model=model, attention="flash2"))


@pytest.mark.parametrize(
    ("layers", "start", "skip", "expected"),
    [
        (28, 21, 0, "([0]*21+[1]*7)"),
        (8, 0, 3, "3"),
        (8, 1, 3, "([0]*1+([1]*2+[0])*2+[1]*1)"),
        (8, 2, 3, "([0]*2+([1]*2+[0])*2)"),
        (8, 6, 3, "([0]*6+[1]*2)"),
        (8, 2, 1, "([0]*2+([1]*0+[0])*6)"),
        (8, 9, 0, "([0]*8)"),
        (8, 0, 0, None),
    ],
)
def test_the_layers_with_a_window_are_a_number_or_a_list(
    layers: int, start: int, skip: int, expected: str | None
) -> None:
    """A number if every n-th layer from the first on has full attention, a list if a later layer is the first."""
    run = windowed(layers, start, skip)
    assert {flag[0]: flag[-1] for flag in megatron_core_flags(run)}.get("--window-attn-skip-freq") == expected
    fields = {name: value for name, value in MEGATRON_BRIDGE.settings(run, ExportOptions())}  # noqa: C416
    if start:
        layers_of = [run.workload.model.is_windowed_layer(layer) for layer in range(layers)]
        assert ast.literal_eval(fields["window_attn_skip_freq"]) == layers_of
    else:
        assert fields.get("window_attn_skip_freq") == expected
    if expected:
        assert f"--window-attn-skip-freq {shlex.quote(expected)}" in exported(run, "megatron-core")["launch.sbatch"]


@pytest.mark.parametrize(("start", "skip"), [*product((0, 1, 3, 12), (0, 1, 2, 5))])
def test_megatron_trains_the_windows_of_the_model(start: int, skip: int) -> None:
    run = windowed(12, start, skip)
    assert_exact_or_refused(run)
    assert trained(parsed(megatron_core_flags(run)))["window"] == asked(run)["window"]


def test_a_late_window_with_layers_of_prediction_is_refused() -> None:
    """Their layers are numbered from one, so that they would have the window of the first layers."""
    run = windowed(12, 3, 0)
    run = replace(run, workload=replace(run.workload, model=replace(run.workload.model, mtp_layers=1)))
    for chosen in (MEGATRON_CORE, MEGATRON_BRIDGE):
        assert "sliding window of 4096 tokens from layer 4 on" in chosen.refusals(run, ExportOptions())
