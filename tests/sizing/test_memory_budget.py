"""`tuner memory`: the LatentWire budget figure by figure, where it does not add up, and the laws of every budget."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner
from tests.conftest import Run
from tuner.core import catalog
from tuner.core.catalog import gpu
from tuner.core.columns import Columns
from tuner.core.domain import Attention, Topology
from tuner.core.errors import InputError
from tuner.costmodel.constants import FRAGMENT_SHARE
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.sizing.memory_budget import (
    ClaimCheck,
    MemoryBudget,
    MemoryRequest,
    budget,
    bytes_of,
    judged,
    parameters_of,
    part,
    sample_bytes,
)
from tuner.space.build import space_for

LATENTWIRE = ("memory", "--trainable", "100M", "--decimal", "--sample", "0.405GB", "--gpu", "H100-80GB-SXM")
OWN_MODELS = ("--frozen", "llama-3-8b", "--frozen", "7b")
H100 = gpu("H100-80GB-SXM")


def _document(run: Run, *arguments: str) -> dict[str, Any]:
    said = run(*arguments, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    assert found["schema"] == "tuner/memory/1"
    return found


def test_the_latentwire_budget_comes_out_component_by_component(run: Run) -> None:
    """32, 0.2, 1.2, 0.2, 6.4 and 40 GB of 80 follow from 16 billion frozen parameters and 100 million trained ones."""
    document = _document(run, *LATENTWIRE, "--frozen", "16B", "--target", "0.85")
    own = document["budgets"][0]
    gb = {name: round(size * 2**30 / 1e9, 2) for name, size in own["components_gib"].items()}
    assert gb == {"frozen": 32.0, "trainable": 0.2, "gradients": 0.2, "optimizer": 1.2, "overhead": 6.4}
    assert own["left_gib"] * 2**30 == pytest.approx(40e9)
    assert own["card_gib"] * 2**30 == pytest.approx(80e9)


def test_69_samples_fit_and_64_are_recommended_on_one_to_four_gpus(run: Run) -> None:
    budgets = _document(run, *LATENTWIRE, "--frozen", "16B", "--target", "0.85")["budgets"]
    assert [each["largest_batch"] for each in budgets] == [69] * 4
    assert [each["recommended_batch"] for each in budgets] == [64] * 4
    assert [each["effective_batch"] for each in budgets] == [64, 128, 192, 256]
    assert budgets[0]["margin"] == pytest.approx(1 - 64 / 69)


def test_batch_64_exceeds_80_percent_of_the_gpu_by_the_reports_budget(run: Run) -> None:
    """69 at 85% makes 0.405 GB a sample, with which 64 take 82% and 80% holds 59."""
    own = _document(run, *LATENTWIRE, "--frozen", "16B", "--target", "0.80")["budgets"][0]
    assert own["largest_batch"] == 59
    assert MemoryRequest(frozen=(part("16B"),), trainable=1e8).optimizer == "adam"
    made = budget(MemoryRequest(frozen=(part("16B"),), trainable=1e8, sample=0.405e9), H100, target=0.85, decimal=True)
    assert made.used(64) == pytest.approx(0.824, abs=0.001)


def test_the_gap_in_the_latentwire_arithmetic_is_reported_in_numbers(run: Run) -> None:
    claims = {"frozen": "32", "trainable": "0.2", "optimizer": "1.2", "gradients": "0.2", "overhead": "6.4"}
    claims |= {"left": "40", "used": "37%"}
    arguments = [word for name, value in claims.items() for word in ("--claim", f"{name}={value}")]
    said = _document(run, *LATENTWIRE, *OWN_MODELS, *arguments)["claims"]
    assert {each["claim"] for each in said if not each["closes"]} == {"frozen", "left", "used"}
    text = run(*LATENTWIRE, *OWN_MODELS, *arguments).out
    assert "claimed 32 GB, computed 16.1 (llama-3-8b) + 14.0 (7b) = 30.1 GB (+1.9 GB)" in text
    assert "37% of 80 GB is 29.6 GB, less than the frozen models alone (30.1 GB)" in text


def test_cards_stand_side_by_side(run: Run) -> None:
    cards = "A100-80GB-SXM,H100-80GB-SXM,H200-141GB-SXM"
    document = _document(run, "memory", *OWN_MODELS, "--trainable", "100M", "--gpu", cards, "--seq", "512")
    assert [each["gpu"] for each in document["budgets"][::4]] == cards.split(",")
    largest = [each["largest_batch"] for each in document["budgets"][::4]]
    assert largest[0] == largest[1] < largest[2]


def test_a_fragment_is_written_for_each_number_of_gpus(run: Run, tmp_path: Path) -> None:
    arguments = (*LATENTWIRE, "--frozen", "16B", "--target", "0.85", "--export")
    assert run(*arguments, str(tmp_path / "own.yaml")).code == 0
    text = (tmp_path / "own.yaml").read_text()
    assert (
        "    gpus_4:\n      batch_size: 64\n      effective_batch_size: 256\n      elastic_target_util: 0.85\n" in text
    )
    assert run(*arguments, str(tmp_path / "folder")).code == 0
    assert (tmp_path / "folder/H100-80GB-SXM.yaml").read_text() == text
    two = run(*arguments, str(tmp_path / "own.yaml"), "--gpu", "H100-80GB-SXM,A100-80GB-SXM")
    assert two.code == 2


@given(
    st.floats(0, 20e9), st.floats(0, 2e9), st.floats(1e6, 5e9), st.floats(0.1, 1.0), st.integers(1, 64), st.booleans()
)
def test_the_largest_batch_fits_and_one_more_does_not(
    frozen: float, trainable: float, sample: float, target: float, ranks: int, decimal: bool
) -> None:
    """And the recommended one is no larger, and a higher ZeRO stage never makes room for fewer."""
    frozen_part = (replace(part("7b"), parameters=frozen),)
    plan = MemoryRequest(frozen=frozen_part, trainable=trainable, sample=sample)
    made = budget(plan, H100, ranks=ranks, target=target, decimal=decimal)
    most = made.largest()
    assert most == 0 or made.used(most) <= target * (1 + 1e-9)
    assert made.used(most + 1) > target * (1 - 1e-9)
    assert 0 <= made.recommended <= most
    assert (made.recommended == 0) == (most == 0)
    stages = [budget(replace(plan, zero=zero), H100, ranks=ranks, target=target).largest() for zero in range(4)]
    assert stages == sorted(stages)


def test_checkpointing_and_shorter_samples_make_room() -> None:
    plan = MemoryRequest(frozen=(part("llama-3-8b", 1024),), trainable=1e8)
    longer = replace(plan, frozen=(part("llama-3-8b", 4096),))
    own, kept, long = (budget(each, H100) for each in (plan, replace(plan, checkpointing=False), longer))
    assert own.sample < kept.sample
    assert own.sample < long.sample


BAD = [
    ((), "nothing to budget: pass --frozen MODEL, such as llama-3-8b or 7b, or --trainable SIZE."),
    (("--trainable", "0"), "nothing to budget"),
    (("--frozen", "lama-3-8b"), "there is no model called 'lama-3-8b'"),
    (("--trainable", "lots"), "'lots' is not a number of parameters such as 100M"),
    (("--sample", "4 apples"), "'4 apples' is not a size such as 0.4GB"),
    (("--gpu", "H100"), "there is no GPU called 'H100'"),
    (("--claim", "weights=3"), "--claim 'weights=3' is not NAME=GB"),
    (("--claim", "frozen"), "--claim 'frozen' is not NAME=GB"),
    (("--claim", "frozen=much"), "--claim 'frozen=much' is not NAME=GB"),
    (("--claim", "frozen=-1"), "--claim 'frozen=-1' is not NAME=GB"),
    (("--claim", "frozen=1e6"), "--claim 'frozen=1e6' is not NAME=GB"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, run: Run) -> None:
    said = run("memory", *arguments)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert sentence in said.err


def test_without_a_shape_nobody_knows_what_a_sample_takes(run: Run) -> None:
    said = run("memory", "--trainable", "100M")
    assert said.code == 0
    assert "Pass --sample SIZE" in said.out


@pytest.mark.parametrize(("size", "shown"), [("1B", "1B"), ("100M", "100M"), ("1234M", "1.234B"), ("2500", "2.5K")])
def test_the_size_of_the_trained_part_has_its_own_unit(size: str, shown: str, run: Run) -> None:
    assert f" {shown} parameters, bf16\n" in run("memory", "--frozen", "7b", "--trainable", size).out


def test_what_fits_no_batch_is_an_error_with_the_memory_that_is_missing(run: Run, tmp_path: Path) -> None:
    """The figures are those of the budget closest to one sample; no file is written, and claims are still checked."""
    own = ("memory", "--frozen", "200B", "--sample", "1GiB", "--export", str(tmp_path / "own.yaml"))
    frozen = 200e9 * 2 / 2**30
    for gpus, where in ((1, "H100-80GB-SXM"), (4, "each of 4 H100-80GB-SXM")):
        said = run(*own, "--zero", "3", "--gpus", str(gpus), "--claim", "frozen=400")
        assert said.code == 1
        need = frozen / gpus + 6.4 + 1
        taken = f"a batch of 1 needs {need:.1f} GiB on {where}, of which the frozen models take {frozen / gpus:.1f}"
        assert f"{taken}; that is {need - 64:.1f} GiB more than the 64.0 GiB" in said.err
        assert said.out.startswith(". frozen ")
    assert not list(tmp_path.iterdir())
    assert run(*own[:3]).code == run(*own[:3], "--json").code == 1
    said = run("memory", "--trainable", "100B")
    assert said.code == 1
    assert "the models need" in said.err
    assert "of which" not in said.err


def test_only_the_numbers_of_gpus_that_fit_a_batch_have_one(run: Run, tmp_path: Path) -> None:
    own = ("memory", "--frozen", "200B", "--sample", "1GB", "--zero", "3", "--gpus", "8")
    out = run(*own, "--export", str(tmp_path / "own.yaml")).out
    rows = {int(line.split()[0]): line.split()[2:] for line in out.splitlines() if line[:4].strip().isdigit()}
    assert [rows[ranks] for ranks in (1, 6)] == [["none", "0.931"]] * 2
    assert rows[7][:2] == ["4", "4"]
    text = (tmp_path / "own.yaml").read_text()
    assert [line.strip() for line in text.splitlines() if "gpus_" in line] == ["gpus_7:", "gpus_8:"]
    said = run("memory", "--trainable", "3B", "--export", str(tmp_path / "none.yaml"))
    assert (said.code, (tmp_path / "none.yaml").exists()) == (2, False)
    assert "the activation memory of a sample is unknown: pass --sample" in said.err


def test_sizes_are_read_in_peoples_words() -> None:
    assert parameters_of("1.5B") == 1.5e9
    assert (bytes_of("0.4GB"), bytes_of("2MiB")) == (0.4e9, 2 * 2**20)
    assert part("7b").model is not None
    assert part("5M").model is None
    with pytest.raises(InputError):
        bytes_of("0GB")


@pytest.mark.parametrize(
    ("zero", "expected"),
    [(0, (20.0, 2.0, 2.0, 12.0)), (1, (20.0, 2.0, 2.0, 3.0)), (2, (20.0, 2.0, 0.5, 3.0)), (3, (5.0, 0.5, 0.5, 3.0))],
)
def test_each_zero_stage_shards_its_own_components(zero: int, expected: tuple[float, ...]) -> None:
    """Bytes of bf16 weights, gradients, and fp32 master weights with both moments of Adam, over four ranks."""
    request = MemoryRequest(frozen=(part("10b"),), trainable=1e9, zero=zero, sample=1e9)
    found = budget(request, gpu("A100-80GB-SXM"), ranks=4).components
    names = ("frozen", "trainable", "gradients", "optimizer")
    assert tuple(found[name] / 1e9 for name in names) == pytest.approx(expected)


BUDGET = MemoryBudget(
    gpu="a card",
    ranks=2,
    card=80e9,
    target=0.5,
    components={"frozen": 20e9, "trainable": 4e9, "gradients": 2e9, "optimizer": 1e9, "overhead": 3e9},
    sample=2e9,
)
REQUEST = MemoryRequest(frozen=(part("7b"), part("3b")), trainable=1e9)


@pytest.mark.parametrize(
    ("name", "claim", "closes", "sentence"),
    [
        ("trainable", 4.08, True, "claimed 4.08 GB, computed 4.00 GB: OK"),  # 2%
        ("trainable", 4.09, False, "claimed 4.09 GB, computed 4.00 GB (+0.1 GB)"),
        ("optimizer", 0.95, True, "claimed 0.95 GB, computed 1.00 GB: OK"),  # 0.05 GB
        ("optimizer", 0.94, False, "claimed 0.94 GB, computed 1.00 GB (-0.1 GB)"),
        ("left", 50.0, True, "claimed 50 GB, computed 80 - 30.0 = 50.0 GB: OK"),
        ("frozen", 22.0, False, "claimed 22 GB, computed 14.0 (7b) + 6.0 (3b) = 20.0 GB (+2.0 GB)"),
        ("batch", 5.0, True, "5 samples use 50.0% of the card; 5 fit into 50%"),
        ("batch", 6.0, False, "6 samples use 52.5% of the card; 5 fit into 50%"),
        ("used", 0.375, True, "38% of 80 GB is 30.0 GB, at least the 30.0 GB before any sample"),
        ("used", 0.37, False, "37% of 80 GB is 29.6 GB, less than the 30.0 GB before any sample"),
        ("used", 0.25, False, "25% of 80 GB is 20.0 GB, less than the 30.0 GB before any sample"),
        ("used", 0.24, False, "24% of 80 GB is 19.2 GB, less than the frozen models alone (20.0 GB)"),
    ],
)
def test_a_claim_closes_within_two_percent_or_half_of_a_printed_tenth(
    name: str, claim: float, closes: bool, sentence: str
) -> None:
    assert judged({name: claim}, REQUEST, BUDGET) == [ClaimCheck(claim=name, closes=closes, sentence=sentence)]


def test_frozen_models_in_fp32_take_four_bytes_and_no_models_none() -> None:
    (found,) = judged({"frozen": 40.0}, replace(REQUEST, precision="fp32"), BUDGET)
    assert found.sentence == "claimed 40 GB, computed 28.0 (7b) + 12.0 (3b) = 40.0 GB (+20.0 GB)"
    (none,) = judged({"frozen": 0.0}, replace(REQUEST, frozen=()), replace(BUDGET, components={"frozen": 0.0}))
    assert none.sentence == "claimed 0 GB, computed 0 GB: OK"
    (batch,) = judged({"batch": 4.0}, REQUEST, replace(BUDGET, sample=0.0))
    assert (batch.closes, batch.sentence) == (False, "the memory of a sample is unknown; give --sample")


@pytest.mark.parametrize(
    ("sample", "largest", "recommended", "margin"),
    [
        (2e9, 5, 4, 0.2),
        (1e9, 10, 8, 0.2),
        (1.25e9, 8, 8, 0.0),
        (0.4e9, 25, 24, 0.04),
        (11e9, 0, 0, 0.0),
        (0.0, 0, 0, 0),
    ],
)
def test_a_recommended_batch_is_a_multiple_of_eight_or_a_power_of_two(
    sample: float, largest: int, recommended: int, margin: float
) -> None:
    """Half of 80 GB leaves 10 GB beside 30 GB; three quarters leave 30 GB."""
    made = replace(BUDGET, sample=sample)
    assert (made.fixed, made.left) == (30e9, 50e9)
    assert (made.largest(), made.recommended) == (largest, recommended)
    assert made.margin == pytest.approx(margin)
    assert made.largest(0.75) == (int(30e9 / sample) if sample else 0)
    assert made.used(3) == pytest.approx((30e9 + 3 * sample) / 80e9)


@pytest.mark.parametrize(("precision", "checkpointing"), [("bf16", True), ("bf16", False), ("fp32", True)])
def test_a_sample_takes_the_activations_of_every_frozen_model_and_their_fragments(
    precision: Any, checkpointing: bool
) -> None:
    """Those of one sequence on one GPU: activations, what a layer works with, and the logits."""
    names = ("llama-3-8b", "gpt-1.3b")
    frozen = tuple(part(name, 512) for name in (*names, "7b"))
    request = MemoryRequest(frozen=frozen, trainable=1e8, precision=precision, checkpointing=checkpointing)
    expected = 0.0
    for model in [catalog.model(name) for name in names] + [part("7b").model]:
        assert model
        space = space_for(model=replace(model, seq=512, max_positions=512), nodes=1, gpus_per_node=1, gpu=H100)
        attention: Attention = "eager" if precision == "fp32" else "flash2"
        workload = replace(
            space.workload,
            precision=precision,
            attention=attention,
            parallel_loss=False,
            framework=None,
            global_batch=1,
        )
        recompute = "full" if checkpointing else "none"
        one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute=recompute)
        terms = memory_terms(Stages.first(Columns.of([one], workload, space.cluster)), SiteFactors())
        expected += float(terms["activations"][0] + terms["working"][0] + terms["logits"][0]) * (1 + FRAGMENT_SHARE)
    assert sample_bytes(request, H100) == pytest.approx(expected)
    assert budget(request, H100).sample == sample_bytes(request, H100)
    assert budget(replace(request, sample=3e9), H100).sample == 3e9


def test_learned_positions_limit_a_sample(tmp_path: Path) -> None:
    """A frozen model with 1,024 learned positions takes no longer samples, as `tuner plan` takes none."""
    gpt2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    (tmp_path / "config.json").write_text(json.dumps(gpt2))
    frozen = [str(tmp_path / "config.json")]
    assert tuner.memory(frozen=frozen, seq=1024).budgets
    with pytest.raises(InputError, match=r"has 1,024 learned positions; --seq must be at most that, not 4,096"):
        tuner.memory(frozen=frozen, seq=4096)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"zero": 7}, r"zero must be 0, 1, 2 or 3 \(got 7\)"),
        ({"target": 2.0}, r"target must be above 0 and at most 1 \(got 2.0\)"),
        ({"overhead": math.nan}, r"overhead must be at least 0 and below 1 \(got nan\)"),
        ({"overhead": 1.0}, r"overhead must be at least 0 and below 1 \(got 1.0\)"),
        ({"gpus": 0}, r"gpus must be at least 1 \(got 0\)"),
        ({"multiple": 0}, r"multiple must be at least 1 \(got 0\)"),
        ({"optimizer": "adamw"}, "there is no optimizer called 'adamw'; did you mean"),
        ({"precision": "bf17"}, "there is no precision called 'bf17'; did you mean bf16"),
        ({"frozen": "7b"}, r"frozen is a list of strings, such as \['7b'\]; got '7b'"),
    ],
)
def test_arguments_that_the_command_line_would_refuse_are_refused_in_python(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        tuner.memory(**{"frozen": ["7b"], **given})
