"""All hypothesis strategies of the tests."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any, get_args

from hypothesis import settings
from hypothesis import strategies as st

from tuner.core.catalog import gpu, make_cluster
from tuner.core.columns import AXES, Columns
from tuner.core.delta_net import DeltaNet
from tuner.core.domain import (
    OPT_IN,
    PARTITION,
    Cluster,
    Optimizer,
    Partition,
    Precision,
    Ramp,
    Topology,
    Workload,
)
from tuner.core.frameworks import FRAMEWORKS
from tuner.core.model import Model
from tuner.core.recompute import GRANULARITIES, RECOMPUTE
from tuner.core.shape import Shape
from tuner.costmodel.site_factors import PRIOR, SiteFactors
from tuner.space.axes import default_axes
from tuner.space.rules import POLICIES, RuleSet
from tuner.space.space import Space

few = settings(max_examples=settings().max_examples // 5)
"""Settings for slow properties, which fit a calibration in each example."""
DELTA_NET = DeltaNet(key_heads=4, value_heads=12, key_size=32, value_size=64, period=3)
small = st.integers(min_value=1, max_value=12)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Models of odd and even sizes, with or without grouped queries and padding."""
    heads = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]))
    return Model(
        layers=draw(small),
        hidden=heads * draw(st.sampled_from([8, 16, 20, 64])) + draw(st.sampled_from([0, 0, 0, 1])),
        heads=heads,
        kv_heads=draw(st.sampled_from([0, 1, 2, 3, 4])),
        ffn=draw(st.sampled_from([0, 0, 96, 100])),
        head_size=draw(st.sampled_from([0, 0, 0, 32])),
        gated_mlp=draw(st.booleans()),
        vocab=draw(st.sampled_from([500, 512, 50257])),
        vocab_multiple=draw(st.sampled_from([128, 0])),
        seq=draw(st.sampled_from([12, 16, 64, 96, 100, 128, 2048, 4096, 8192])),
        attention_gate=draw(st.booleans()),
        delta_net=draw(st.sampled_from([None, None, None, DELTA_NET, replace(DELTA_NET, period=0)])),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A few nodes of one to eight GPUs."""
    name = draw(st.sampled_from(["A100-80GB-SXM", "V100-32GB-SXM", "H100-80GB-SXM"]))
    per_node, nodes = draw(st.sampled_from([1, 2, 3, 4, 6, 8])), draw(st.integers(1, 6))
    domain = per_node * draw(st.sampled_from([1, 1, 2, 3, 6]))
    return make_cluster(name="drawn", nodes=nodes, gpus_per_node=per_node, gpu=gpu(name), nvlink_domain=domain)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Workloads with every attention kernel, with and without a batch ramp-up."""
    ramps = st.builds(Ramp, start=st.sampled_from([4, 16, 32]), increment=st.sampled_from([1, 4, 16]))
    return Workload(
        model=draw(models()),
        global_batch=draw(st.sampled_from([1, 6, 16, 32, 48, 64, 96])),
        precision=draw(st.sampled_from(["fp32", "fp16"])),
        attention=draw(st.sampled_from(["eager", "fused", "flash1", "flash2"])),
        ramp=draw(st.one_of(st.none(), ramps)),
        framework=draw(st.one_of(st.none(), st.sampled_from(FRAMEWORKS))),
    )


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Arbitrary topologies, most of which break some rule."""
    return Topology(
        nodes=draw(st.integers(1, 8)),
        tp=draw(st.sampled_from([1, 2, 3, 4, 8, 16])),
        pp=draw(small),
        dp=draw(small),
        cp=draw(st.sampled_from([1, 1, 2, 3, 4])),
        vpp=draw(st.sampled_from([1, 1, 2, 3])),
        micro_batch=draw(small),
        zero=draw(st.integers(0, 3)),
        sequence_parallel=draw(st.booleans()),
        recompute=draw(st.sampled_from(RECOMPUTE)),
        partition=draw(st.sampled_from(PARTITION)),
        heads=draw(st.one_of(st.none(), small)),
        shape=draw(st.one_of(st.none(), st.builds(Shape, hidden=st.sampled_from([64, 96]), layers=small))),
        global_batch=draw(st.one_of(st.none(), st.sampled_from([8, 32, 100]))),
    )


@st.composite
def runs(draw: st.DrawFn, /, **fixed: Any) -> tuple[Workload, Cluster, Topology]:
    """Runs that a framework would accept: each degree divides what it splits. `fixed` sets values by name."""

    def chosen(name: str, *few: Any) -> Any:
        return fixed[name] if name in fixed else draw(st.sampled_from(few))

    card = gpu(chosen("card", "A100-80GB-SXM", "V100-32GB-SXM", "H100-80GB-SXM", "RTX6000ADA-48GB"))
    tp, pp = chosen("tp", 1, 1, 2, 4, 8), chosen("pp", 1, 1, 2, 3, 4, 8)
    attention = chosen("attention", *card.kernels)
    cp = chosen("cp", 1, 1, 2, 4) if attention in ("flash1", "flash2") else 1
    vpp = chosen("vpp", 1, 1, 2, 3) if pp > 1 else 1
    partition: Partition = chosen("partition", *PARTITION) if pp * vpp > 2 else "layers"
    a_chunk = chosen("layers_in_chunk", 1, 2, 3, 6) + (partition != "layers")
    heads = tp * chosen("heads_on_rank", 1, 2, 5, 8)
    gated = chosen("gated_mlp", False, True)
    dp, micro_batch = chosen("dp", 1, 2, 3, 4, 8, 16), chosen("micro_batch", 1, 2, 3, 4, 8)
    # With interleaving, Megatron needs a multiple of pp; otherwise any number, even fewer than there are stages.
    microbatches = chosen("microbatches", 1, 2, 3, 4, 16) * (pp if vpp > 1 else 1)
    model = Model(
        layers=pp * vpp * a_chunk - {"layers": 0, "embedding": 2, "layout": 1}[partition],
        hidden=heads * chosen("head_size", 64, 80, 108, 128, 256),
        heads=heads,
        kv_heads=tp * draw(st.sampled_from([1, heads // tp])),
        gated_mlp=gated,
        tied_embeddings=chosen("tied_embeddings", False, True),
        positions=chosen("positions", "learned", "rotary", "none"),
        norm=chosen("norm", "layernorm", "rmsnorm"),
        vocab=chosen("vocab", 256, 32000, 50257, 250880),
        seq=chosen("seq", 512, 1024, 2048, 4096, 8192),
        frozen_params=chosen("frozen_params", 0, 0, 10**9),
    )
    workload = Workload(
        model=model,
        global_batch=dp * micro_batch * microbatches,
        precision=chosen("precision", *(kind for kind in card.peak_flops if kind in get_args(Precision))),
        attention=attention,
        optimizer=chosen("optimizer", *get_args(Optimizer)),
        fused_norms=chosen("fused_norms", False, True),
        plain_layers=chosen("plain_layers", False, False, True),
        parallel_loss=chosen("parallel_loss", False, True),
    )
    per_node = chosen("gpus_per_node", 4, 8)
    nodes = -(-tp * pp * cp * dp // per_node)
    topology = Topology(
        nodes=nodes,
        tp=tp,
        pp=pp,
        vpp=vpp,
        cp=cp,
        dp=dp,
        micro_batch=micro_batch,
        zero=chosen("zero", 0, 1, 2, 3) if pp == 1 else min(1, chosen("zero", 0, 1)),
        sequence_parallel=tp > 1 and chosen("sequence_parallel", False, True),
        recompute=chosen("recompute", *GRANULARITIES),
        partition=partition,
    )
    return workload, make_cluster(name="drawn", nodes=nodes, gpus_per_node=per_node, gpu=card), topology


@st.composite
def alternatives(draw: st.DrawFn) -> Columns:
    """Several topologies of one workload in random order, some of them repeated."""
    workload, cluster, topology = draw(runs())
    vary: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {
            "micro_batch": st.sampled_from([topology.micro_batch, 2 * topology.micro_batch]),
            "recompute": st.sampled_from(GRANULARITIES),
            "sequence_parallel": st.sampled_from([False, topology.tp > 1]),
            "zero": st.integers(0, 3 if topology.pp == 1 else 1),
        }
    )
    changes = draw(st.lists(vary, min_size=1, max_size=6)) * draw(st.integers(1, 3))
    rows = [replace(topology, **change) for change in draw(st.permutations(changes))]
    return Columns.of(rows, replace(workload, global_batch=2 * workload.global_batch), cluster)


def sites() -> st.SearchStrategy[SiteFactors]:
    """Sites with factors within two prior deviations of the catalog."""
    wide = {field.name: getattr(PRIOR, field.name) for field in fields(SiteFactors)}
    far = st.tuples(*[st.floats(-2.0, 2.0)] * len(wide))
    return far.map(
        lambda each: SiteFactors(**{name: math.exp(at * wide[name]) for name, at in zip(wide, each, strict=True)})
    )


rule_sets = st.builds(RuleSet, allowed=st.frozensets(st.sampled_from(POLICIES)))


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Small spaces with few values per axis, so that a brute-force walk over all points is fast."""
    workload, cluster = draw(workloads()), draw(clusters())
    few: dict[str, st.SearchStrategy[Any]] = {
        "shape": st.sampled_from([workload.model.shape, Shape(hidden=96, layers=8), Shape(hidden=64, layers=6)]),
        "global_batch": st.sampled_from([workload.global_batch, 32, 64]),
        "nodes": st.integers(1, cluster.nodes + 1),
        "tp": st.sampled_from([1, 2, 3, 4, 8]),
        "pp": st.sampled_from([1, 2, 3, 4, 5, 8]),
        "cp": st.sampled_from([1, 2, 4]),
        "micro_batch": st.sampled_from([1, 2, 3, 4]),
        "heads": st.sampled_from([workload.model.heads, 4, 12, 16]),
        "partition": st.sampled_from(PARTITION),
        "vpp": st.sampled_from([1, 2, 3]),
        "sequence_parallel": st.booleans(),
        "zero": st.integers(0, 3),
        "recompute": st.sampled_from(RECOMPUTE),
        **{axis: st.just(default) for axis, default in OPT_IN.items()},
    }
    most = {"sequence_parallel": 1, "partition": 2, "recompute": 1}
    axes = {
        axis: tuple(draw(st.lists(few[axis], min_size=1, max_size=most.get(axis, 2), unique=True))) for axis in AXES
    }
    dp = tuple(draw(st.lists(small, max_size=2, unique=True)))
    return Space(workload=workload, cluster=cluster, rules=draw(rule_sets), axes=axes, dp=dp)


@st.composite
def whole_spaces(draw: st.DrawFn) -> Space:
    """Spaces with the default axes of a drawn workload and cluster."""
    workload, cluster = draw(workloads()), draw(clusters())
    workload = replace(workload, global_batch=draw(st.sampled_from([32, 64, 96])))
    return Space(workload=workload, cluster=cluster, rules=draw(rule_sets), axes=default_axes(workload, cluster), dp=())


RANK_PREFIXES = [["[default0]:", "[default7]:"], ["0: ", "1: ", "12: "], ["a01: ", "b: ", "c-2.net: "]]


@st.composite
def rank_logs(draw: st.DrawFn) -> list[list[str]]:
    """Logs of several ranks for the same iterations, with the rank's name before each line."""
    first = draw(st.integers(1, 1000))
    times = draw(st.lists(st.integers(1000, 9000), min_size=1, max_size=5))
    return [
        [
            f"{name} iteration {first + step:8d}/    2000 | elapsed time per iteration (ms): "
            f"{100 * time + draw(st.integers(0, 500)):.1f} | global batch size: 16 | lm loss: {9 - step:.3E} |\n"
            for step, time in enumerate(times)
        ]
        for name in draw(st.sampled_from(RANK_PREFIXES))
    ]


_LOG_PIECES = """
 iteration ;2/ 500 |;3/ 500 |; elapsed time per iteration (ms): ;12.5 |;1e99 |; TFLOPs: ;|;steps: 2 loss: ;nan
iter time (s): ;0.046 samples/sec: ;global_step=3, ;SamplesPerSec=;inf,;CurrSamplesPerSec=;0.0,;time (ms) | fwd: ;bwd:
step: ;Profile Summary at step 3:;iter latency: ;1 ms;memory (MB) | allocated: ;max allocated: ;MA ;GB ;Max_MA ;CA
Traceback (most recent call last):;  File;ValueError: ;CUDA out of memory;[rank0]: ;exitcode  : -9;Exception ignored in
-------- arguments --------;  num_layers ....... ;  world_size ... ;9999999999999;0;-1;\x1b[;\0; lm loss: ;Max_CA ;\r
 global batch size: ; actual seqlen: ;²;①;CANCELLED AT x DUE TO TIME LIMIT
""".replace("\n", ";\n;").split(";")


def log_texts() -> st.SearchStrategy[str]:
    """Arbitrary text, and pieces of logs in arbitrary order."""
    return st.one_of(st.text(max_size=200), st.lists(st.sampled_from(_LOG_PIECES), max_size=40).map("".join))


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, str]]:
    """Rows of a measurement table, most of them valid, with known and unknown columns."""
    whole = st.integers(1, 16).map(str)
    figure = st.floats(0.01, 5000).map(lambda value: f"{value:.4g}")
    words = st.text("abcXYZ ,;\"'é|-", min_size=1, max_size=8).map(str.strip)
    columns: dict[str, st.SearchStrategy[str]] = {
        "layers": whole,
        "hidden": st.sampled_from(["512", "1024", "4096"]),
        **dict.fromkeys(("tp", "pp", "mbs", "heads", "nodes"), whole),
        "gbs": st.sampled_from(["", "64", "512", "x"]),
        "gpu": st.sampled_from(["A100-80GB-SXM", "V100-32GB-SXM", "nothing"]),
        "recompute": st.sampled_from(["none", "selective", "full", ""]),
        "status": st.sampled_from(["OK", "OOM", ""]),
        "sec_per_iter": st.one_of(figure, st.just("")),
        "tflops": st.one_of(figure, st.just("xxxx")),
        "mem_gib": st.one_of(figure, st.just("")),
        "note": words,
        "weather": words,
    }
    chosen = draw(st.lists(st.sampled_from(sorted(columns)), min_size=2, unique=True).filter(_is_a_table))
    return [{name: draw(columns[name]) for name in chosen} | {"tp": "2"} for _ in range(draw(st.integers(1, 6)))]


def _is_a_table(columns: list[str]) -> bool:
    return bool({"tp", "mbs", "sec_per_iter", "mem_gib", "nodes"} & set(columns))


_SOUND = ("OK", "OK", "OK", "OOM", "FAIL")
_BROKEN = ({"hidden": "wide"}, {"dp": "0"}, {"gpu": "A1"}, {"precision": "int3"}, {"audit": "exclude: reprint"})
"""Cells that make a row unusable: it describes no run, or is excluded."""


@st.composite
def measured_rows(draw: st.DrawFn, *, most: int = 14, broken: bool = True) -> list[dict[str, str]]:
    """Rows of a measurement table with a few groups: timed, OOM or without figures, some of them unusable.

    Cells have few different values, so that duplicates and ties are common.
    """
    few = st.sampled_from
    row = st.fixed_dictionaries(
        {
            "group": few(["one", "two"]),
            "gpu": few(["A100-80GB-SXM", "A100-80GB-SXM", "V100-32GB-SXM"]),
            **dict.fromkeys(("tp", "pp", "dp", "mbs"), few(["1", "2", "4"])),
            "gbs": few(["64", "128"]),
            "layers": few(["8", "40"]),
            "hidden": few(["1024", "5120"]),
            "heads": few(["16", "32"]),
            "attention": few(["flash1", "fused"]),
            "recompute": few(["full", "none"]),
            "precision": st.just("fp16"),
            "sec_per_iter": st.one_of(few(["", "2", "2.02", "2.1"]), st.floats(0.05, 90).map(lambda s: f"{s:.5g}")),
            "mem_gib": st.one_of(st.just(""), st.floats(0.5, 32).map(lambda gib: f"{gib:.4g}")),
            "status": few(_SOUND),
        }
    )
    rows = draw(st.lists(row, min_size=1, max_size=most))
    if not broken:
        return rows
    bad = st.lists(st.tuples(row, few(_BROKEN)).map(lambda pair: pair[0] | pair[1]), max_size=3)
    return draw(st.permutations(rows + draw(bad)))


@st.composite
def shown(draw: st.DrawFn, candidates: int) -> list[tuple[int, float | None]]:
    """Results of two to four jobs of a pool: the candidate, with the error of its log seconds, or None for OOM."""
    places = draw(st.lists(st.integers(0, candidates - 1), min_size=2, max_size=4, unique=True))
    return [(place, draw(st.none() | st.floats(-0.12, 0.12))) for place in places]
