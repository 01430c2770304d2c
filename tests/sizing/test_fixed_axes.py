"""Axes that the user did not set: they are named, and recompute is not fixed where it decides which option is best."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tuner
from tests.conftest import Run
from tuner.core.domain import Framework
from tuner.core.errors import InputError, NothingUsable

H100: dict[str, Any] = {"gpu": "H100-80GB-SXM", "nodes": 1}
LLAMA = ("compare", "--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "1", "--global-batch", "256")


def test_each_option_has_the_recompute_with_which_it_is_fastest() -> None:
    """Without recompute, tp=1 fits nothing and tp=4 looks best; with full recompute, tp=1 is faster than it."""
    described: dict[str, Any] = {"model": "llama-3-8b", "global_batch": 256, **H100}
    one, four = tuner.compare(settings=["tp=1,4"], **described).models[0]
    assert (one.label, four.label) == ("tp=1, recompute=full", "tp=4, recompute=none")
    assert one.best.days < four.best.days
    for option in (one, four):
        days: dict[str, float] = {}
        for recompute in ("none", "selective", "full"):
            settings = [f"recompute={recompute}", f"tp={option.topology.tp}"]
            try:
                ((alone,),) = tuner.compare(settings=settings, **described).models
            except NothingUsable:
                continue
            days[recompute] = alone.fastest.days
        assert min(days, key=lambda name: days[name]) == option.topology.recompute
        assert option.fastest.days == pytest.approx(min(days.values()))


def test_a_recompute_that_is_set_is_kept(run: Run) -> None:
    with pytest.raises(NothingUsable, match="smallest batch; recompute activations with --set recompute=full"):
        tuner.compare(model="llama-3-8b", settings=["tp=1", "recompute=none"], **H100)
    said = run(*LLAMA, "--set", "tp=1,4", "--set", "recompute=none").out
    assert "recompute=" not in said
    assert "Each option has the recompute" not in said


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        (["recompute=none,selective,full"], ["recompute=none", "recompute=selective", "recompute=full"]),
        (["tp=1,2,4,8", "recompute=full"], ["tp=1", "tp=2", "tp=4", "tp=8"]),
    ],
)
def test_all_values_of_an_axis_are_compared(settings: list[str], labels: list[str]) -> None:
    """Also where they are the values that the axis has without --set."""
    found = tuner.compare(model="llama-3-8b", settings=settings, most=1, **H100)
    assert [option.label for option in found.models[0]] == labels


def test_tp_is_compared_on_a_node_of_two_gpus() -> None:
    found = tuner.compare(model="gpt-1.3b", gpus_per_node=2, most=1, **H100)
    assert [option.topology.tp for option in found.models[0]] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "fixed"),
    [
        ((), "pp=1, cp=1, sequence_parallel=false and zero=3"),
        (("tp=1,4", "cp=1"), "pp=1, sequence_parallel=false and zero=3"),
        (("pp=1,2",), "tp=1, cp=1, vpp=1 and zero=3 or 1"),
        (("tp=2,4", "pp=1", "cp=1", "sequence_parallel=true", "zero=3"), ""),
        (("sequence_parallel=true",), "pp=1, cp=1 and zero=3"),
    ],
)
def test_a_comparison_names_what_it_fixes(settings: tuple[str, ...], fixed: str, run: Run) -> None:
    said = run(*LLAMA, *(word for axis in settings for word in ("--set", axis))).out
    lines = [line for line in said.splitlines() if line.startswith("Fixed")]
    assert lines == ([f"Fixed: {fixed}; change them with --set."] if fixed else [])
    assert "Each option has the recompute with which it is fastest, unless --set recompute names one." in said


@pytest.mark.parametrize(
    ("framework", "settings", "labels"),
    [
        (None, ["sequence_parallel=true"], [("tp=1", False), ("tp=8", True)]),
        (
            None,
            ["sequence_parallel=true,false"],
            [
                ("tp=1, sequence_parallel=false", False),
                ("tp=8, sequence_parallel=true", True),
                ("tp=8, sequence_parallel=false", False),
            ],
        ),
        (None, [], [("tp=1", False), ("tp=8", False)]),
        ("megatron-core", [], [("tp=1", False), ("tp=8", True)]),
        ("torchtitan", ["tp=1,2"], [("tp=1", False), ("tp=2", True)]),
        ("torchtitan", ["sequence_parallel=false"], [("tp=1", False), ("tp=8", False)]),
        ("fsdp2", [], [("tp=1", False), ("tp=8", False)]),
    ],
)
def test_sequence_parallelism_is_that_of_the_options_with_tensor_parallelism(
    framework: Framework | None, settings: list[str], labels: list[tuple[str, bool]]
) -> None:
    """By default, they use it where the framework named has it; plain layers do not, as in the Enoki report."""
    asked = ["recompute=full", *settings]
    found = tuner.compare(model="llama-3-8b", framework=framework, settings=asked, most=1, **H100).models[0]
    assert [(option.label, option.topology.sequence_parallel) for option in found] == labels


def test_a_sequence_that_tp_does_not_divide_has_no_sequence_parallelism_by_default() -> None:
    asked: dict[str, Any] = {"model": "llama-3-8b", "framework": "torchtitan", "seq": 2049, **H100}
    _, eight = tuner.compare(**asked, settings=["recompute=full"], most=1).models[0]
    assert (eight.topology.tp, eight.topology.sequence_parallel) == (8, False)


def test_sequence_parallelism_without_tensor_parallelism_is_refused() -> None:
    with pytest.raises(InputError, match="sequence parallelism splits work among tensor-parallel ranks, but tp is 1"):
        tuner.compare(model="llama-3-8b", settings=["tp=1", "sequence_parallel=true"], **H100)


def test_options_without_a_common_batch_are_compared_by_their_accumulated_fastest_batches(run: Run) -> None:
    """The printed ratio is that of the days; each option says which batches it fits."""
    own = ("compare", "--model", "llama-3-70b", "--gpu", "H100-80GB-SXM", "--nodes", "16", "--global-batch", "1024")
    said = run(*own).out
    one, two = "tp=1, recompute=full", "tp=8, recompute=full"
    first, second = json.loads(run(*own, "--json").out)["models"][0]["ways"]
    assert (first["way"], second["way"]) == (one, two)
    assert (
        f"  no batch size in common: {one} fits 128 to 256 and runs out of memory at 512; "
        f"{two} fits 16 to 64 and runs out of memory at 128\n"
    ) in said
    ratio = second["days"] / first["days"]
    assert (
        f"  with gradient accumulation to the same global batch, {two} takes {ratio:.2f} times the time of {one}\n"
        in said
    )
    terms = next(line for line in said.splitlines() if line.startswith("  time per sequence, estimated: "))
    assert terms.split(": ")[1].startswith("tensor_parallel 0 -> 12.28 ms, ")
    assert "  memory at batches 256 and 64, estimated: gathered 31.48 -> 3.88 GiB" in said


def test_where_no_batch_fits_the_settings_to_try_are_printed(run: Run) -> None:
    """Recompute is proposed unless it is set, and the proposal works."""
    own = ("max-batch", "--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "1")
    others = "shard more with --set tp=N or offload the optimizer with --set offload=optimizer.\n"
    said = run(*own)
    assert said.code == 1
    recompute = "recompute activations with --set recompute=full"
    assert said.err.endswith(f"runs out of memory; {recompute}, {others}")
    assert run(*own, *recompute.split()[-2:]).code == 0
    said = run("max-batch", "--model", "llama-3-405b", *own[3:], "--set", "recompute=full")
    assert said.err.endswith(f"runs out of memory; {others}")


def test_an_option_that_fits_nothing_runs_out_of_memory_with_full_recompute(run: Run) -> None:
    said = run(
        "compare", "--model", "llama-3-70b", "--framework", "fsdp2", *LLAMA[3:6], "16", "--global-batch", "1024"
    ).out
    assert "tp=1, recompute=full runs out of memory at 128\n" in said
    assert "with gradient accumulation" not in said


def test_a_search_names_what_it_fixes(run: Run) -> None:
    own = ("max-batch", "--model", "qwen3-30b-a3b", "--gpu", "H100-80GB-SXM", "--nodes", "4", "--most", "1")
    line = "fixed: tp=1, pp=1, cp=1, recompute=none, zero=3 and ep=1; change them with --set\n"
    assert line in run(*own).out
    fixed = json.loads(run(*own, "--json").out)["fixed"]
    assert fixed == {"tp": [1], "pp": [1], "cp": [1], "recompute": ["none"], "zero": [3], "ep": [1]}
    compared = json.loads(run("compare", *own[1:], "--set", "ep=1,8", "--json").out)
    assert compared["fixed"] == {"tp": [1], "pp": [1], "cp": [1], "zero": [3]}
    table = ("max-batch", "--table", "corpus/e1-400m-ada.csv", "--step", "16")
    assert "fixed: " not in run(*table).out
    assert json.loads(run(*table, "--json").out)["fixed"] == {}


def test_a_batch_is_no_larger_than_the_global_batch() -> None:
    """On 8 GPUs, 16 sequences are a micro batch of 2; one of 1 is tried in any case."""
    for global_batch, tried in ((None, [1, 2, 4]), (16, [1, 2]), (17, [1, 2]), (4, [1])):
        ((option,),) = tuner.compare(
            model="llama-3-8b", settings=["tp=1", "recompute=full"], global_batch=global_batch, most=4, **H100
        ).models
        assert [attempt.micro_batch for attempt in option.answer.found.attempts] == tried
