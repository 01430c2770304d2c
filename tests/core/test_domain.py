"""The types: what they refuse, what follows, and how a topology is written down and read back."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import models, topologies
from tuner.core import domain
from tuner.core import outcomes as results
from tuner.core.catalog import gpu, make_cluster
from tuner.core.domain import Topology, Workload
from tuner.core.errors import BadKey, InputError
from tuner.core.keys import parse_key
from tuner.core.model import Model
from tuner.core.shape import Shape

A_MODEL = Model(layers=72, hidden=14336, heads=64, vocab=250880, seq=2048)
A_WORKLOAD = Workload(model=A_MODEL, global_batch=2048)
A_CLUSTER = make_cluster(name="c", nodes=48, gpus_per_node=8, gpu=gpu("A100-80GB-SXM"))


def test_the_key_reads_as_people_say_it() -> None:
    assert Topology(nodes=48, tp=8, pp=12, dp=4, micro_batch=2).key == "tp8-pp12-dp4-mbs2-z1"


def test_a_key_names_everything_that_is_not_at_its_default() -> None:
    topology = Topology(
        nodes=48,
        tp=4,
        pp=6,
        dp=4,
        cp=4,
        vpp=2,
        micro_batch=1,
        zero=0,
        sequence_parallel=True,
        recompute="selective",
        partition="embedding",
        heads=112,
        shape=Shape(hidden=13824, layers=78),
        global_batch=1920,
    )
    assert topology.key == "tp4-pp6-dp4-mbs1-z0-vpp2-cp4-sp-rsel-emb-h112-13824x78-gbs1920"


@given(topologies())
def test_a_key_read_back_is_the_same_topology(topology: Topology) -> None:
    """But for the nodes, which follow from its GPUs, and the partition, which follows where the key leaves it out."""
    read = parse_key(topology.key, workload=A_WORKLOAD, cluster=A_CLUSTER)
    same = dataclasses.replace(read, nodes=topology.nodes)
    if topology.partition == "layers":
        same = dataclasses.replace(same, partition="layers")
    assert same == topology
    assert read.nodes == -(-topology.gpus // A_CLUSTER.gpus_per_node)


def test_one_topology_has_one_key() -> None:
    """What a key spells out and the workload says anyway is left to the workload."""
    read = parse_key("tp8-pp12-dp4-mbs2-z1-h64-14336x72-gbs2048-rfull", workload=A_WORKLOAD, cluster=A_CLUSTER)
    assert read.key == "tp8-pp12-dp4-mbs2-z1"


def test_a_key_without_dp_fills_the_cluster() -> None:
    read = parse_key("tp8-pp12-mbs2-z1", workload=A_WORKLOAD, cluster=A_CLUSTER)
    assert (read.dp, read.nodes) == (4, 48)


def test_a_pipeline_that_divides_only_layers_and_ends_is_partitioned_so() -> None:
    bloom = dataclasses.replace(A_WORKLOAD, model=dataclasses.replace(A_MODEL, layers=70))
    assert parse_key("tp4-pp12-dp8-mbs2-z1", workload=bloom, cluster=A_CLUSTER).partition == "embedding"
    assert parse_key("tp4-pp10-dp8-mbs2-z1", workload=bloom, cluster=A_CLUSTER).partition == "layers"


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("", "unknown part ''"),
        ("tp8", "pp, mbs and z missing"),
        ("tp8-pp12-dp4", "mbs and z missing"),
        ("tp8-pp12-dp4-mbs2-z1-q3", "unknown part 'q3'"),
        ("tp8-tp8-pp12-mbs2-z1", "tp occurs twice"),
        ("tp8-pp12-dp4-mbs2-z-1", "unknown part 'z'"),
        ("tp8-pp12-dp4-mbs2-z1\n", None),
        ("TP8-PP12-DP4-MBS2-Z1", None),
        ("tp00000000008-pp12-dp4-mbs2-z0000000000001", None),
        (f"tp{'0' * 5000}8-pp12-dp4-mbs2-z1", None),
        ("tp8-pp12-dp04-mbs2-z01", None),
        ("tp08888888888-pp1-mbs1-z1", "the number in 'tp08888888888' is too large"),
        ("tp9999999999-pp1-mbs1-z1", "the number in 'tp9999999999' is too large"),
        ("tp1-pp1-mbs1-z1-14336x9999999999", "the number in '14336x9999999999' is too large"),
        ("tp८-pp1-mbs1-z1", "unknown part 'tp८'"),
    ],
)
def test_a_malformed_key_is_told_what_a_key_looks_like(key: str, complaint: str | None) -> None:
    if complaint is None:
        assert parse_key(key, workload=A_WORKLOAD, cluster=A_CLUSTER).key == "tp8-pp12-dp4-mbs2-z1"
        return
    with pytest.raises(BadKey, match="expected a key like tp8-pp12-dp4-mbs2-z1") as refused:
        parse_key(key, workload=A_WORKLOAD, cluster=A_CLUSTER)
    assert complaint in str(refused.value)


@pytest.mark.parametrize("key", ["tp0-pp1-mbs1-z1", "tp8-pp12-dp4-mbs2-z4", "tp8-pp0-dp4-mbs2-z1", "tp8-pp1-mbs0-z1"])
def test_a_key_with_impossible_sizes_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=r"topology field (tp|pp|zero|micro_batch) must be between"):
        parse_key(key, workload=A_WORKLOAD, cluster=A_CLUSTER)


@given(models())
def test_parameters_add_up_over_layers_embedding_and_head(model: Model) -> None:
    deeper = dataclasses.replace(model, layers=model.layers + 1)
    more = linear_parameters(model) - model.attention_parameters
    added = model.layer_parameters + (deeper.delta_layers - model.delta_layers) * more
    assert deeper.parameters - model.parameters == added
    layers = model.layers * model.layer_parameters + model.delta_layers * more
    assert model.parameters == layers + model.embedding_parameters + model.head_parameters
    assert model.layer_parameters > 0


def linear_parameters(model: Model) -> int:
    """Return the parameters of a layer with Gated DeltaNet, without its MLP: two projections, a convolution over four
    tokens, two numbers and a norm's width, and two norms with biases."""
    if model.delta_net is None:
        return 0
    delta = model.delta_net
    keys, values = delta.key_heads * delta.key_size, delta.value_heads * delta.value_size
    projections = model.hidden * (2 * keys + 2 * values + 2 * delta.value_heads) + values * model.hidden
    return projections + 4 * (2 * keys + values) + 2 * delta.value_heads + delta.value_size + 4 * model.hidden


def test_a_plain_gpt_has_twelve_hidden_squared_and_thirteen_hidden_a_layer() -> None:
    model = Model(layers=1, hidden=128, heads=4, vocab=10, seq=7)
    assert model.layer_parameters == 12 * 128**2 + 13 * 128
    assert model.embedding_parameters == 10 * 128 + 7 * 128
    assert model.head_parameters == 2 * 128


@given(models(), st.sampled_from([1, 2, 4, 8]))
def test_other_heads_keep_a_plain_model_plain(model: Model, heads: int) -> None:
    other = model.with_heads(heads)
    assert other.heads == heads
    assert other.kv_heads == (heads if model.kv_heads == model.heads else model.kv_heads)


def test_a_workload_as_in_a_topology_takes_its_heads_shape_and_batch() -> None:
    workload = Workload(model=A_MODEL, global_batch=2048)
    shape = Shape(hidden=13824, layers=78)
    topology = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, heads=96, shape=shape, global_batch=1920)
    asked = workload.as_in(topology)
    assert (asked.model.heads, asked.model.shape, asked.model.ffn) == (96, shape, 4 * 13824)
    assert asked.global_batch == 1920
    assert workload.as_in(Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1)) == workload


def test_chinchilla_is_the_length_of_a_training_where_none_is_given() -> None:
    assert Workload(model=A_MODEL, global_batch=1).training_tokens == 20 * A_MODEL.parameters
    assert Workload(model=A_MODEL, global_batch=1, tokens=3e11).training_tokens == 3e11


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("layers", 0, "model field layers must be between 1 and 10,000, not 0."),
        ("layers", -3, "model field layers must be between 1 and 10,000, not -3."),
        (
            "hidden",
            10**30,
            "model field hidden must be between 1 and 1,000,000, not 1,000,000,000,000,000,000,000,000,000,000.",
        ),
        ("heads", "64", "model field heads must be a whole number, not '64'."),
        ("heads", 1.5, "model field heads must be a whole number, not 1.5."),
        ("seq", True, "model field seq must be a whole number, not True."),
        ("gated_mlp", "yes", "model field gated_mlp must be true or false, not 'yes'."),
        ("positions", "sine", "model field positions must be learned, rotary, alibi or none, not 'sine'."),
        ("name", 7, "model field name must be a string of 1 to 200 printable characters, not 7."),
    ],
)
def test_a_size_that_cannot_be_is_refused_in_one_sentence(field: str, value: object, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        dataclasses.replace(A_MODEL, **{field: value})  # type: ignore[arg-type]
    assert str(refused.value) == sentence


def test_every_type_is_frozen_slotted_and_keyword_only() -> None:
    known = [*vars(domain).values(), *vars(results).values()]
    types = [value for value in known if dataclasses.is_dataclass(value) and isinstance(value, type)]
    assert len(types) >= 13
    for each in types:
        assert each.__dataclass_params__.frozen, each  # type: ignore[attr-defined]
        assert "__slots__" in vars(each), each
        assert all(field.kw_only for field in dataclasses.fields(each)), each


def test_an_estimate_is_no_measurement() -> None:
    """A prediction can never pass for an observation, nor a total be anything but the sum of its terms."""
    assert not issubclass(results.Estimate, results.Measurement)
    assert results.TermSum(terms={"compute": 2.0, "bubble": 0.5}).total == 2.5
    assert results.TermSum(terms={}).total == 0
    assert {outcome.value for outcome in results.Outcome} == {
        *("MEASURED", "OOM", "HUNG", "CRASHED", "TIMED_OUT", "PREEMPTED", "PRUNED", "REJECTED", "CANCELLED"),
        "UNREADABLE",
    }


def test_a_measurement_is_of_the_second_iteration_and_the_fullest_gpu_unless_it_says_otherwise() -> None:
    measured = results.Measurement(seconds=1.0)
    assert (measured.iterations, measured.memory_kind, measured.simulated, measured.note) == ((2,), None, False, "")
