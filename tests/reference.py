"""Reference implementations in plain Python: the laws and policies for one topology, a walk over every grid point, and
the scores of an evaluation.

They are written from the rules' documentation and the JSON contracts, independently of the product's code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import ceil, sqrt
from statistics import median
from typing import Any

from tuner.core.columns import AXES
from tuner.core.domain import Topology, Workload
from tuner.space.space import Space


def legal_topologies(space: Space) -> Iterator[Topology]:
    """Yield every legal topology of the grid in its order, by nested loops."""
    for values in itertools.product(*(space.axes[axis] for axis in AXES)):
        at = dict(zip(AXES, values, strict=True))
        replica = at["tp"] * at["pp"] * at["cp"]
        dp, rest = divmod(at["nodes"] * space.cluster.gpus_per_node, replica)
        if rest or dp == 0 or (space.dp and dp not in space.dp):
            continue
        topology = Topology(dp=dp, **at)
        if not broken(topology, space):
            yield topology


def broken(topology: Topology, space: Space) -> set[str]:
    """Return the names of the laws and of the active policies that a topology breaks."""
    workload, cluster = space.workload.as_in(topology), space.cluster
    model, batch = workload.model, workload.global_batch
    tp, pp, cp, dp, vpp = topology.tp, topology.pp, topology.cp, topology.dp, topology.vpp
    step = topology.micro_batch * dp
    microbatches = batch // step
    found = set()

    def need(name: str, holds: bool) -> None:
        if not holds:
            found.add(name)

    need("fill-nodes", tp * pp * cp * dp == topology.nodes * cluster.gpus_per_node)
    need("enough-nodes", topology.nodes <= cluster.nodes)
    need("heads-by-tp", model.heads % tp == 0)
    need("hidden-by-tp", model.hidden % tp == 0)
    need("ffn-by-tp", model.ffn % tp == 0)
    vocab = model.vocab
    while model.vocab_multiple and vocab % (model.vocab_multiple * tp):
        vocab += 1
    need("vocab-by-tp", vocab % tp == 0)
    if space.workload.model.kv_heads != space.workload.model.heads:
        need("kv-heads-with-tp", model.kv_heads % tp == 0 or tp % model.kv_heads == 0)
        need("heads-by-kv-heads", model.heads % model.kv_heads == 0)
    if workload.framework == "megatron-core" and workload.optimizer == "adam-bf16":
        need("bf16-moments-need-zero", topology.zero >= 1 and topology.offload == "none")
    need("hidden-by-heads", bool(model.head_size) or model.hidden % model.heads == 0)
    units = model.layers + (2 if topology.partition == "embedding" else 0)
    last = model.layers - (pp * vpp - 1) * ceil(Fraction(model.layers, pp * vpp))
    if topology.partition == "layout":
        need("one-partition", model.layers % (pp * vpp) != 0 and (model.layers + 2) % (pp * vpp) != 0)
        need("layer-on-every-stage", last >= 1)
    else:
        need("layers-by-pp", units % pp == 0)
    if topology.partition == "embedding":
        need("one-partition", model.layers % (pp * vpp) != 0)
        need("layer-on-every-stage", units // (pp * vpp) >= 2)
    if vpp > 1:
        need("vpp-needs-pp", pp > 1)
        need("layers-by-vpp", topology.partition == "layout" or units % (pp * vpp) == 0)
        need("microbatches-by-pp", microbatches % pp == 0)
    need("batch-by-dp", batch % step == 0)
    need("zero-without-pipeline", pp == 1 or topology.zero < 2 or workload.framework in ("fsdp2", "torchtitan"))
    found |= {f"framework-{lack}" for lack in framework_lacks(topology, space.workload)}
    if topology.sequence_parallel:
        need("sp-needs-tp", tp > 1)
        need("seq-by-tp", model.seq % (tp * cp) == 0)
    if cp > 1:
        need("seq-by-cp", model.seq % (2 * cp) == 0)
        need("cp-needs-flash", workload.attention in ("flash1", "flash2"))
        if workload.framework == "megatron-core" and model.attention_sinks:
            need("cp-by-heads", model.heads // tp % cp == 0 and max(1, model.kv_heads // tp) % cp == 0)
        if workload.framework == "fsdp2":
            need("cp-without-mask", not 0 < model.sliding_window < model.seq and model.positions != "alibi")
    if workload.framework == "megatron-core" and workload.precision in ("fp8", "fp4"):
        head = Fraction(model.head_size or Fraction(model.hidden, model.heads))
        widths = [
            Fraction(model.hidden),
            model.heads * head / tp,
            max(Fraction(model.kv_heads, tp), Fraction(1)) * head,
        ]
        if delta := model.delta_net:
            keys, values = delta.key_heads * delta.key_size, delta.value_heads * delta.value_size
            widths += [Fraction(2 * keys + 2 * values + 2 * delta.value_heads, tp), Fraction(values, tp)]
        if model.experts is None or model.dense_mlp_layers:
            widths.append(Fraction(model.ffn, tp))
        if model.experts:
            widths += [Fraction(model.experts.ffn), Fraction(model.experts.shared_ffn, tp)]
        unit = 32 if workload.precision_recipe == "mxfp8" else 16
        need("fp8-sizes", all(width % unit == 0 for width in widths))
        if model.experts:
            need("fp8-expert-sizes", Fraction(model.experts.ffn, topology.etp) % unit == 0)

    if model.delta_net:
        need("delta-net-heads", model.delta_net.key_heads % (tp * cp) == 0)
        shared = {"megatron-core": tp * cp, "torchtitan": tp}.get(workload.framework or "megatron-core", 1)
        need("framework-delta-net", tp * cp == shared)

    words = set() if topology.recompute in ("none", "selective", "full") else set(topology.recompute.split("+"))
    if workload.framework in (None, "megatron-core"):
        moe, latent = model.experts is not None, model.latent is not None
        separate = {"core_attn", *(["layernorm"] if moe or latent else []), *(["mla_up_proj"] if latent else [])}
        separate |= {"mlp"} if not model.experts or model.dense_mlp_layers else set()
        separate |= {"moe", "moe_act"} if moe else set()
        separate |= {"shared_experts"} if model.experts and model.experts.shared_ffn else set()
        need("recompute-modules", words <= separate and not ("moe" in words and words & {"moe_act", "shared_experts"}))
    if workload.framework == "megatron-core" and workload.precision == "fp8":
        delayed = workload.precision_recipe in (None, "delayed")
        need("recompute-delayed-fp8", not (delayed and words & {"layernorm", "moe_act"}))
    if workload.framework == "megatron-core" and model.experts:
        need("recompute-moe-act", not (workload.attention == "eager" and "moe_act" in words))
        need("expert-biases", not (model.experts.expert_bias and topology.etp > 1))

    if workload.attention.startswith("flash"):
        need("flash-precision", workload.precision != "fp32")
        head_size = Fraction(model.head_size or Fraction(model.hidden, model.heads))
        need("flash-head-size", head_size <= {"flash1": 128, "flash2": 256}[workload.attention])

    allowed = space.rules.allowed
    policies = set()
    node, domain = cluster.gpus_per_node, cluster.nvlink_domain or cluster.gpus_per_node
    if not any(tp * k == node for k in range(1, node + 1)) and tp not in range(node, domain + 1, node):
        policies.add("tp-in-nvlink-domain")
    if workload.ramp is None and model.name.lower().startswith("bloom"):
        if dp % 4:
            policies.add("dp-multiple-of-4")
        if batch % 32:
            policies.add("batch-multiple-of-32")
    elif workload.ramp is not None:
        sizes, size = [], workload.ramp.start
        while size < batch:
            sizes.append(size)
            size += workload.ramp.increment
        # The first step counts even if it is the only one, and the steps must end at the batch itself.
        steps = [workload.ramp.start, workload.ramp.start + workload.ramp.increment, *sizes]
        if size != batch or any(each % step for each in steps):
            policies.add("ramp-up")
    if workload.attention == "fused":
        rows = 8 if model.seq <= 128 else 4
        shaped = 16 < model.seq <= 4096 and model.seq % 4 == 0
        exact = topology.micro_batch * model.heads % tp == 0
        fits = exact and (topology.micro_batch * model.heads // tp) % rows == 0
        if not (shaped and fits and workload.precision in ("fp16", "bf16")):
            policies.add("fused-softmax")
    if topology.micro_batch not in (1, 2, 4, 8, 16, 32, 64):
        policies.add("micro-batch-power-of-two")
    if microbatches < pp:
        policies.add("microbatches-fill-pipeline")
    searched = not model.head_size and model.heads != space.workload.model.heads
    if searched and not 64 <= Fraction(model.hidden, model.heads) <= 256:
        policies.add("head-size")
    return found | (policies - allowed)


def framework_lacks(topology: Topology, workload: Workload) -> set[str]:
    """Return the features of a topology that the workload's framework lacks, according to its documentation."""
    model = workload.model
    found = {
        "cp": topology.cp > 1,
        "pp": topology.pp > 1,
        "vpp": topology.vpp > 1,
        "sequence-parallel": topology.sequence_parallel,
        "recompute": topology.recompute not in ("none", "full"),
        "partition": topology.partition == "layout",
    }
    lacking = {name for name, needed in found.items() if needed}
    modules = {"recompute"} if topology.recompute not in ("none", "selective", "full") else set()
    match workload.framework:
        case "megatron-core":
            return {"zero"} if topology.zero > 1 else set()
        case "megatron-deepspeed":
            organisation = topology.partition == "layers" and model.positions != "alibi" and not model.embedding_norm
            plain = model.kv_heads == model.heads and model.norm == "layernorm" and model.tied_embeddings
            bloom = workload.attention in ("eager", "fused") and plain
            bloom = bloom and topology.recompute != "selective" and topology.zero < 2
            bloom = bloom and topology.partition != "layout"
            runs = (organisation or bloom) and not modules
            return (lacking & {"cp", "vpp", "sequence-parallel", "partition"}) | modules | (set() if runs else {"fork"})
        case "deepspeed":
            return (lacking & {"cp", "vpp", "partition"}) | modules
        case "fsdp2":
            return (lacking - {"cp"}) | ({"zero"} if topology.zero < 2 else set())
        case "torchtitan":
            return (
                (lacking & {"partition"})
                | modules
                | ({"zero"} if topology.zero < 2 else set())
                | ({"pp"} if topology.pp > 1 and model.tied_embeddings else set())
            )
    return set()


def ignored_advice(topology: Topology, space: Space) -> set[str]:
    """Return the names of the advice that a topology does not follow."""
    workload, gpu = space.workload.as_in(topology), space.cluster.gpu
    model, tp, pp = workload.model, topology.tp, topology.pp
    head_size = Fraction(model.head_size or Fraction(model.hidden, model.heads))
    found = set()
    for multiple in (8, 64):
        if Fraction(model.hidden, tp) % multiple:
            found.add(f"hidden-per-tp-by-{multiple}")
        if head_size % multiple:
            found.add(f"head-size-by-{multiple}")
    if model.hidden % 128 or Fraction(model.ffn, tp) % 128:
        found.add("tile-quantization")

    tokens = max(1, topology.micro_batch * model.seq // topology.cp)
    columns = (2 if model.gated_mlp else 1) * Fraction(model.ffn, tp)
    tiles = ceil(Fraction(tokens, 256)) * ceil(columns / 128)
    waves = ceil(Fraction(tiles, gpu.sms))
    if Fraction(tiles, waves * gpu.sms) < Fraction(9, 10):
        found.add("wave-quantization")

    if pp > 1:
        attention = model.hidden * head_size * ((2 + model.attention_gate) * model.heads + 2 * model.kv_heads)
        work = attention + 2 * model.seq * model.heads * head_size
        if delta := model.delta_net:
            keys, values = delta.key_heads * delta.key_size, delta.value_heads * delta.value_size
            linear = model.hidden * (2 * keys + 3 * values + 2 * delta.value_heads)
            attended = Fraction(model.layers // delta.period if delta.period else 0, model.layers)
            work = attended * work + (1 - attended) * linear
        work += (3 if model.gated_mlp else 2) * model.hidden * model.ffn
        head = Fraction(model.hidden * model.vocab) / work
        ends = 1 if topology.partition == "embedding" else 0
        share = Fraction(model.layers + 2 * ends, pp)
        last = share - ends
        if topology.partition == "layout":
            most = ceil(Fraction(model.layers, pp * topology.vpp))
            share = Fraction(most * topology.vpp)
            last = share - (most * pp * topology.vpp - model.layers)
        if max(share, last + head) / (Fraction(model.layers + head) / pp) - 1 > Fraction(1, 10):
            found.add("uneven-stages")
    if topology.vpp > 1:
        found.add("interleaving-needs-megatron-lm")
    return found


def tau_b(measured: Sequence[float], estimated: Sequence[float]) -> float:
    """Return Kendall's tau-b by its definition, pair by pair: (C - D) / sqrt((C + D + X) (C + D + Y))."""
    counts = {"concordant": 0, "discordant": 0, "tied in measured": 0, "tied in estimated": 0}
    for (a, x), (b, y) in itertools.combinations(zip(measured, estimated, strict=True), 2):
        if a == b and x == y:
            continue
        if a == b:
            counts["tied in measured"] += 1
        elif x == y:
            counts["tied in estimated"] += 1
        else:
            counts["concordant" if (a < b) == (x < y) else "discordant"] += 1
    ordered = counts["concordant"] + counts["discordant"]
    pairs = (ordered + counts["tied in measured"]) * (ordered + counts["tied in estimated"])
    return float((counts["concordant"] - counts["discordant"]) / sqrt(pairs)) if pairs else 0.0


def top1_regret(measured: Sequence[float], estimated: Sequence[float]) -> float:
    """Return the mean relative slowdown, against the best row, of the rows tied for the lowest estimate."""
    liked = min(estimated)
    picked = [seconds for seconds, estimate in zip(measured, estimated, strict=True) if estimate == liked]
    return sum(seconds / min(measured) - 1 for seconds in picked) / len(picked)


def scores(rows: Iterable[dict[str, Any]]) -> dict[str, float | None]:
    """Return the summary of `tuner evaluate --json`, calculated from its rows."""
    scored = [row for row in rows if row["skipped"] is None and not row["calibrated"]]
    timed = [row for row in scored if row["status"] == "OK" and row["measured_sec"]]
    weighed = [row for row in scored if row["status"] == "OK" and row["measured_gib"]]
    off = [abs(row["estimated_sec"] / row["measured_sec"] - 1) for row in timed]
    caught = [not row["fits"] for row in scored if row["status"] == "OOM"]
    kept = [row["fits"] for row in scored if row["status"] == "OK"]
    groups = [[row for row in timed if row["group"] == name] for name in {row["group"] for row in timed}]
    ranked = [
        (
            [row["measured_sec"] / row["tokens"] for row in group],
            [float(f"{row['estimated_sec'] / row['tokens']:.12g}") for row in group],
        )
        for group in groups
        if len(group) >= 5
    ]
    both = mean(caught), mean(kept)
    return {
        "timed_rows": len(timed),
        "sec_mape": mean(off),
        "sec_median_ape": median(off) if off else None,
        "kendall_tau": mean([tau_b(*group) for group in ranked]),
        "top1_regret": mean([top1_regret(*group) for group in ranked]),
        "mem_rows": len(weighed),
        "mem_mape": mean([abs(row["estimated_gib"] / row["measured_gib"] - 1) for row in weighed]),
        "oom_rows": len(caught),
        "oom_recall": both[0],
        "fit_recall": both[1],
        "balanced_accuracy": None if both[0] is None or both[1] is None else (both[0] + both[1]) / 2,
    }


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None without values."""
    return sum(values) / len(values) if values else None
