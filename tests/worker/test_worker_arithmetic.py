"""The worker in this process, without ranks: shards, padding, stages, microbatches and weights."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import pytest

from tests.workers import WORKLOAD, tiny, topology
from tuner.core.domain import Partition
from tuner.core.errors import InputError

ENVIRONMENT = dict(os.environ)
os.environ["DS_ACCELERATOR"] = "cpu"  # read once, when DeepSpeed is imported
torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from deepspeed.accelerator import get_accelerator  # noqa: E402

from tuner.worker import linear, mesh, model, weights  # noqa: E402
from tuner.worker.data import batch_of, microbatches  # noqa: E402

get_accelerator()
os.environ.clear()
os.environ.update(ENVIRONMENT)  # other tests start processes


def place(**changes: Any) -> mesh.Mesh:
    """Return the mesh of a single rank with changed fields."""
    alone: dict[str, Any] = {
        "tp": 1,
        "tp_rank": 0,
        "tp_group": None,
        "stage": 0,
        "stages": 1,
        "dp": 1,
        "dp_rank": 0,
        "kv_copies": 1,
        "kv_group": None,
        "sequence_parallel": False,
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "axes": None,
        "ep": 1,
        "ep_rank": 0,
        "ep_group": None,
        "expert_group": "",
    }
    return mesh.Mesh(**alone | changes)


def maker(name: str = "", seed: int = 0, **changes: Any) -> linear.Maker:
    """Return a maker on a rank with these fields."""
    return linear.Maker(mesh=place(**changes), seed=seed, name=name)


@pytest.mark.parametrize(
    ("vocab", "multiple", "tp", "padded"),
    [
        (100, 128, 1, 128),
        (128, 128, 1, 128),
        (129, 128, 1, 256),
        (129, 128, 2, 256),
        (300, 64, 3, 384),
        (300, 0, 4, 300),
    ],
)
def test_the_vocabulary_is_padded_to_a_multiple_of_its_multiple_times_tp(
    vocab: int, multiple: int, tp: int, padded: int
) -> None:
    assert tiny(vocab=vocab, vocab_multiple=multiple).padded_vocab(tp) == padded


@pytest.mark.parametrize(
    ("total", "tp", "rank", "offset", "part"),
    [
        (12, 3, 0, 0, range(4)),
        (12, 3, 2, 0, range(8, 12)),
        (12, 3, 1, 5, range(9, 13)),
        (13, 3, 2, 0, range(8, 12)),
        (7, 1, 0, 1, range(1, 8)),
    ],
)
def test_a_shard_follows_those_of_lower_ranks(total: int, tp: int, rank: int, offset: int, part: range) -> None:
    assert linear.shard_of(total, place(tp=tp, tp_rank=rank), offset=offset) == part


@pytest.mark.parametrize(("rank", "copies", "first"), [(0, 2, True), (1, 2, False), (2, 2, True), (3, 4, False)])
def test_the_first_of_the_ranks_that_copy_heads_represents_them(rank: int, copies: int, first: bool) -> None:
    assert place(tp=4, tp_rank=rank, kv_copies=copies).first_of_kv_copies is first


def test_names_of_parts_are_joined_by_dots() -> None:
    assert maker().part("layer0").part("up").name == "layer0.up"
    assert maker(seed=5).part("x").seed == 5


@pytest.mark.parametrize(
    ("rank", "sharded", "counts"), [(0, True, True), (1, True, True), (0, False, True), (1, False, False)]
)
def test_a_parameter_counts_in_the_norm_if_it_is_sharded_or_on_the_first_rank(
    rank: int, sharded: bool, counts: bool
) -> None:
    """DeepSpeed sums marked parameters; those replicated over tensor parallel ranks are marked only on rank 0."""
    made: Any = maker("x", tp=2, tp_rank=rank)
    assert made.vector(3, 1.5, sharded=sharded).tensor_model_parallel is counts
    assert made.vector(3, 1.5, sharded=sharded).tolist() == [1.5] * 3
    assert made.matrix([range(2)], range(4), 0.1, sharded=sharded).tensor_model_parallel is counts


def test_linear_layers_have_their_shards() -> None:
    """Column-parallel layers have output rows, row-parallel ones input columns; a bias is a shard or replicated."""
    second = maker("x", tp=2, tp_rank=1)
    column: Any = linear.ColumnLinear(second, 6, [range(4, 8), range(12, 14)], bias=True)
    assert (column.weight.shape, column.bias.shape) == ((6, 6), (6,))
    row: Any = linear.RowLinear(second, 8, 3, bias=True, deviation=0.5)
    assert (row.weight.shape, row.bias.shape) == ((3, 4), (3,))
    whole = linear.RowLinear(maker("x"), 8, 3, bias=False, deviation=0.5)
    assert whole.bias is None
    assert torch.equal(whole.weight[:, 4:], row.weight)
    assert row.bias.tensor_model_parallel is False
    assert row.weight.tensor_model_parallel is True


@pytest.mark.parametrize(("rank", "counts"), [(0, True), (1, False), (2, True), (3, False)])
def test_copied_columns_count_once(rank: int, counts: bool) -> None:
    copied: Any = linear.CopiedLinear(maker("k", tp=4, tp_rank=rank, kv_copies=2), 4, [range(2)], bias=True)
    assert copied.weight.tensor_model_parallel is counts
    assert copied.bias.tensor_model_parallel is counts
    assert copied.bias.shape == (2,)


@pytest.mark.parametrize(
    ("frozen", "tp", "stages", "sizes"),
    [
        (0, 1, 1, []),
        (7, 2, 2, [2]),
        (8, 2, 2, [2]),
        (20, 1, 1, [8, 8, 4]),
        (16, 1, 1, [8, 8]),
        (17, 2, 1, [8, 1]),
    ],
)
def test_frozen_parameters_are_divided_by_tp_and_pp_in_pieces(
    frozen: int, tp: int, stages: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank has ceil(frozen / (tp x pp)) parameters, here in pieces of 8."""
    monkeypatch.setattr(linear, "PIECE", 8)
    frozen_linear = linear.Beside(tiny(frozen_params=frozen), place(tp=tp, stages=stages))
    assert [parameter.numel() for parameter in frozen_linear.parameters()] == sizes
    assert not any(parameter.requires_grad for parameter in frozen_linear.parameters())


@pytest.mark.parametrize(
    ("sequence_parallel", "cut", "group"), [(False, False, None), (True, False, "tp"), (False, True, "tp")]
)
def test_a_norm_sums_gradients_if_ranks_have_different_activations(
    sequence_parallel: bool, cut: bool, group: str | None
) -> None:
    made = maker("n", tp=2, tp_group="tp", sequence_parallel=sequence_parallel)
    assert linear.Norm(made, 4, kind="rmsnorm", fused=True, cut=cut).group == group


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_a_norm_divides_by_the_root_of_the_mean_square(kind: str, fused: bool) -> None:
    """(x - mean) / sqrt(mean((x - mean)^2) + 1e-5) x weight + bias; RMSNorm has neither mean nor bias."""
    norm = linear.Norm(maker("n"), 4, kind=kind, fused=fused)
    values = [0.001, 0.002, 0.004, 0.009]
    mean = sum(values) / 4 if kind == "layernorm" else 0.0
    root = math.sqrt(sum((value - mean) ** 2 for value in values) / 4 + 1e-5)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        expected = [(value - mean) / root * (index + 1) for index, value in enumerate(values)]
        if norm.bias is not None:
            norm.bias.fill_(0.25)
            expected = [value + 0.25 for value in expected]
        found = norm(torch.tensor(values)).tolist()
    assert (norm.bias is not None) == (kind == "layernorm")
    assert found == pytest.approx(expected, rel=1e-5)


BATCHED = replace(WORKLOAD, global_batch=16)


def test_replicas_take_microbatches_in_turn() -> None:
    """Microbatch t of replica r of 2 starts at sample (2 t + r) x 2; an iteration of 16 samples has 4 of them.

    An iteration of 8 samples has the next two.
    """
    heard: list[tuple[int, int, int]] = []
    chosen = topology(dp=2, micro_batch=2)
    taken = microbatches(BATCHED, chosen, 1, 7, [16, 8], lambda *begun: heard.append(begun))
    batches = list(taken)
    assert heard == [(1, 0, 4), (1, 1, 4), (1, 2, 4), (1, 3, 4), (2, 0, 2), (2, 1, 2)]
    for number, (tokens, labels) in enumerate(batches):
        expected = batch_of((number * 2 + 1) * 2, 2, BATCHED, 7)
        assert torch.equal(tokens, expected[0])
        assert torch.equal(labels, expected[1])


def test_labels_are_the_next_tokens_and_low_tokens_are_likelier() -> None:
    """A uniform u becomes token floor(u^3 x vocabulary), so half of the tokens are in the lowest eighth."""
    tokens, labels = batch_of(3, 64, WORKLOAD, 0)
    assert tokens.shape == labels.shape == (64, 32)
    assert torch.equal(tokens[:, 1:], labels[:, :-1])
    assert (int(tokens.min()), int(tokens.max())) == (0, 127)
    assert float((tokens < 16).float().mean()) == pytest.approx(0.5, abs=0.03)
    assert torch.equal(batch_of(4, 1, WORKLOAD, 0)[0][0], tokens[1])
    drawn = weights.uniform(torch.arange(3, 4), torch.arange(33), weights.name_seed(0, "tokens")).double()
    assert torch.equal((drawn**3 * 128).long()[0, :-1], tokens[0])


def test_the_hash_is_lowbias32() -> None:
    """The reference is Wellons 2018, in plain integers."""

    def lowbias32(number: int) -> int:
        number ^= number >> 16
        number = number * 0x7FEB352D % 2**32
        number ^= number >> 15
        number = number * 0x846CA68B % 2**32
        return number ^ number >> 16

    numbers = [0, 1, 2, 12345, 2**31, 2**32 - 1]
    assert weights.mixed(torch.tensor(numbers)).tolist() == [lowbias32(number) for number in numbers]
    assert weights.mixed(torch.tensor([2**32 + 5])).tolist() == [lowbias32(5)]
    row = lowbias32(lowbias32(3 + 9) ^ 9)
    expected = (lowbias32((row + 2 * 0x9E3779B9) % 2**32) >> 8) / 2**24
    assert float(weights.uniform(torch.tensor([3]), torch.tensor([2]), 9)[0, 0]) == expected


def test_uniform_weights_have_the_requested_deviation() -> None:
    """Weights are (u - 1/2) x deviation x sqrt(12), with mean 0 and maximum deviation x sqrt(3)."""
    weight = torch.empty(200, 100)
    weights.draw(weight, name="w", seed=1, rows=[range(200)], columns=range(100), deviation=0.5)
    assert float(weight.mean()) == pytest.approx(0, abs=0.01)
    assert float(weight.std()) == pytest.approx(0.5, rel=0.01)
    assert 0.86 < float(weight.max()) < 0.5 * math.sqrt(3)
    assert -0.5 * math.sqrt(3) <= float(weight.min()) < -0.86


def test_a_shard_does_not_depend_on_the_pieces_in_which_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, shard = torch.empty(12, 5), torch.empty(5, 3)
    weights.draw(whole, name="w", seed=1, rows=[range(12)], columns=range(5))
    monkeypatch.setattr(weights, "_AT_ONCE", 6)
    weights.draw(shard, name="w", seed=1, rows=[range(1, 4), range(9, 11)], columns=range(1, 4))
    assert torch.equal(shard, whole[[1, 2, 3, 9, 10], 1:4])


@pytest.mark.parametrize(
    ("layers", "pp", "partition", "final_norm", "bounds"),
    [
        (4, 2, "layers", True, [0, 4, 8]),
        (4, 4, "layers", True, [0, 3, 4, 5, 8]),
        (4, 2, "layers", False, [0, 4, 7]),
        (6, 2, "embedding", True, [0, 5, 10]),
        (6, 4, "embedding", True, [0, 3, 5, 7, 10]),
    ],
)
def test_stages_divide_the_list_of_layers(
    layers: int, pp: int, partition: Partition, final_norm: bool, bounds: list[int]
) -> None:
    """The list is embedding, positions, layers, final norm, head; partition=embedding counts its ends as layers."""
    chosen = topology(pp=pp, partition=partition)
    assert model.stage_bounds(tiny(layers=layers, final_norm=final_norm), chosen) == bounds


@pytest.mark.parametrize(("layers", "partition"), [(5, "layers"), (4, "embedding")])
def test_layers_that_cannot_be_divided_evenly_are_refused(layers: int, partition: Partition) -> None:
    with pytest.raises(InputError, match=f"{layers} layers cannot be divided evenly over 4 stages by {partition}"):
        model.stage_bounds(tiny(layers=layers), topology(pp=4, partition=partition))
