"""Everything that determines what a run trains, as properties with a label for users.

`PROPERTIES` covers every field of `Model`, `Topology` and `Workload` that affects training. For each property, a format
declares how it expresses it, or which values it supports and that it refuses all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from tuner.core.domain import Topology, Workload
from tuner.core.model import Model, NormPlacement, QkNorm
from tuner.core.offload import offload_words
from tuner.core.precision import bf16_layer_words, stores_fp8_weights
from tuner.core.text import counted, listed

if TYPE_CHECKING:
    from tuner.export.production import ProductionRun

Subject = Literal["model", "workload", "topology"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One property of a run."""

    name: str
    """Its first field."""
    title: str
    """Its name in tables."""
    fields: tuple[str, ...]
    """The fields that describe it."""
    label: Callable[[Any], str]
    """Describe the value that a model, workload or topology has, as in "GeGLU activation"."""
    subject: Subject = "model"

    def of(self, run: ProductionRun) -> Any:
        """Return the part of a run that this property describes."""
        return {"model": run.workload.model, "workload": run.workload, "topology": run.topology}[self.subject]

    def labelled(self, run: ProductionRun) -> str:
        """Describe the run's value of this property."""
        return self.label(self.of(run))


def activation_name(model: Model) -> str:
    """Return the usual name of a model's activation, such as SwiGLU."""
    plain = {
        "gelu": "exact GELU",
        "gelu_tanh": "tanh-approximated GELU",
        "quick_gelu": "quick GELU",
        "xielu": "xIELU",
        "relu": "ReLU",
        "relu2": "squared ReLU",
        "silu": "SiLU",
    }
    gated = {"gelu": "exact GeGLU", "gelu_tanh": "GeGLU", "quick_gelu": "quick GeGLU", "silu": "SwiGLU"}
    gated |= {"relu": "ReGLU", "relu2": "gated squared ReLU", "xielu": "gated xIELU"}
    return (gated if model.gated_mlp else plain)[model.mlp_activation]


_PLACEMENTS: Final[Mapping[NormPlacement, str]] = {
    "before": "before attention and MLP",
    "after": "after attention and MLP",
    "around": "before and after attention and MLP",
    "after_residual": "after the residual additions",
}
_SPANS: Final[Mapping[QkNorm, str]] = {
    "head": "over each head",
    "heads": "with separate weights for each head",
    "width": "over all heads together",
}


def _positions(model: Model) -> str:
    return {"learned": "learned positions", "rotary": "rotary positions", "alibi": "ALiBi", "none": "no positions"}[
        model.positions
    ]


def _scaling(model: Model) -> str:
    scaling = model.rotary_scaling
    if scaling is None:
        return "no rotary scaling"
    original = f" from {scaling.original_seq:,} positions" if scaling.original_seq else ""
    details = {
        f"betas {scaling.beta_fast:g} and {scaling.beta_slow:g}": scaling.kind == "yarn"
        and (scaling.beta_fast, scaling.beta_slow) != (32.0, 1.0),
        f"frequency factors {scaling.low_frequency:g} and {scaling.high_frequency:g}": scaling.kind == "llama3"
        and (scaling.low_frequency, scaling.high_frequency) != (1.0, 4.0),
        f"attention factor {scaling.attention_factor:g}": scaling.attention_factor,
        "unrounded bounds": not scaling.truncate,
    }
    given = listed(name for name, found in details.items() if found)
    return f"{scaling.kind} rotary scaling by {scaling.factor:g}{original}{given and f' with {given}'}"


def _experts(model: Model) -> str:
    experts = model.experts
    return f"{experts.count} experts with {experts.top_k} per token" if experts else "no experts"


def _window(model: Model) -> str:
    if not model.sliding_window:
        return "no sliding window"
    pattern = f" except in one layer in {model.window_skip}" if model.window_skip else ""
    start = f" from layer {model.window_start + 1} on" if model.window_start else ""
    return f"sliding window of {model.sliding_window} tokens{start}{pattern}"


def _number(title: str, field: str) -> Callable[[Any], str]:
    return lambda subject: f"{title} {getattr(subject, field):.9g}"


def _switch(title: str, field: str) -> Callable[[Any], str]:
    return lambda subject: title if getattr(subject, field) else f"no {title}"


def _numeric(field: str, title: str, subject: Subject = "model") -> Property:
    return Property(name=field, title=title, fields=(field,), label=_number(title, field), subject=subject)


def _switched(field: str, title: str, subject: Subject = "model") -> Property:
    return Property(name=field, title=title, fields=(field,), label=_switch(title, field), subject=subject)


def _described(field: str, title: str, label: Callable[[Any], str], *more: str, subject: Subject = "model") -> Property:
    return Property(name=field, title=title, fields=(field, *more), label=label, subject=subject)


def _glu(model: Model) -> str:
    values = {"clamp": model.glu_clamp, "offset": model.glu_offset}
    given = listed(f"{name} {value:g}" for name, value in values.items() if value)
    return f"a gated MLP with {given}" if given else "no clamp or offset of the gated MLP"


def _precision(workload: Workload) -> str:
    parts = (
        workload.precision_recipe and f"{workload.precision_recipe} scaling",
        "fp8 weights" if stores_fp8_weights(workload) else "",
        bf16_layer_words(workload),
    )
    with_parts = listed(filter(None, parts))
    return f"{workload.precision} precision{with_parts and f' with {with_parts}'}"


def _delta_net(model: Model) -> str:
    delta = model.delta_net
    if delta is None:
        return "no Gated DeltaNet"
    return f"Gated DeltaNet in {counted(model.delta_layers, 'layer')}"


_MODEL: Final = (
    _described("layers", "layers", lambda m: counted(m.layers, "layer")),
    _numeric("hidden", "hidden size"),
    _described("heads", "attention heads", lambda m: counted(m.heads, "attention head")),
    _described(
        "kv_heads",
        "key/value heads",
        lambda m: (
            f"grouped-query attention with {counted(m.kv_heads, 'key/value head')}"
            if m.kv_heads != m.heads
            else "one key/value head per query head"
        ),
    ),
    _described(
        "head_size", "head size", lambda m: f"head size {m.head_size}" if m.head_size else "head size hidden / heads"
    ),
    _numeric("ffn", "MLP width"),
    _described("experts", "mixture of experts", _experts),
    _switched("latent", "latent attention"),
    _described("delta_net", "Gated DeltaNet", _delta_net),
    _switched("attention_gate", "gate of the attention output"),
    _described(
        "mtp_layers",
        "multi-token prediction layers",
        lambda m: counted(m.mtp_layers, "multi-token prediction layer"),
        "mtp_loss",
    ),
    _described("activation", "activation", lambda m: f"{activation_name(m)} activation", "gated_mlp"),
    _described(
        "glu_clamp",
        "clamp and offset of the gated MLP",
        _glu,
        "glu_offset",
    ),
    _described("norm", "norm", lambda m: {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[m.norm]),
    _numeric("norm_epsilon", "norm epsilon"),
    _described(
        "norm_weight", "norm weights", lambda m: "norms with weights" if m.norm_weight else "norms without weights"
    ),
    _described(
        "norm_bias",
        "norm biases",
        lambda m: "norms with biases" if m.norm_bias and m.norm == "layernorm" else "norms without biases",
    ),
    _switched("norm_offset", "norm weights stored as their difference from one"),
    _described(
        "norm_placement",
        "norm placement",
        lambda m: (
            f"norms {_PLACEMENTS[m.norm_placement]}"
            + (f" ({m.norms_per_layer} per layer)" if m.norms_per_layer != 2 else "")
        ),
        "norms_per_layer",
    ),
    _switched("final_norm", "final norm"),
    _switched("embedding_norm", "embedding norm"),
    _described(
        "qk_norm",
        "norm of queries and keys",
        lambda m: f"query and key norm {_SPANS[m.qk_norm_span]}" if m.qk_norm else "no query and key norm",
        "qk_norm_span",
    ),
    _switched("qkv_bias", "bias of queries, keys and values"),
    _switched("attention_bias", "bias of the attention output"),
    _switched("mlp_bias", "MLP bias"),
    _switched("head_bias", "bias of the output layer"),
    _switched("parallel_attention", "parallel attention and MLP"),
    _described("positions", "position embedding", _positions),
    _described("max_positions", "maximum number of positions", lambda m: counted(m.max_positions, "position")),
    _numeric("rotary_base", "rotary base"),
    _numeric("rotary_fraction", "rotary fraction"),
    _described(
        "rotary_interleaved",
        "rotary pairs",
        lambda m: "interleaved rotary pairs" if m.rotary_interleaved else "non-interleaved rotary pairs",
    ),
    _described(
        "rotary_local_base",
        "rotary base of sliding-window layers",
        lambda m: (
            f"rotary base {m.rotary_local_base:.9g} in sliding-window layers"
            if m.rotary_local_base
            else "one rotary base for all layers"
        ),
    ),
    _described(
        "rotary_skip",
        "layers without rotary positions",
        lambda m: f"{f'one layer in {m.rotary_skip}' if m.rotary_skip else 'no layer'} without rotary positions",
    ),
    _described("rotary_scaling", "rotary scaling", _scaling),
    _described("sliding_window", "sliding window", _window, "window_skip", "window_start"),
    _numeric("attention_dropout", "attention dropout"),
    _numeric("hidden_dropout", "hidden dropout"),
    _numeric("embedding_dropout", "embedding dropout"),
    _switched("attention_sinks", "attention sinks"),
    _numeric("attention_softcap", "attention soft-capping"),
    _numeric("logit_softcap", "logit soft-capping"),
    _numeric("attention_scale", "attention scale"),
    _numeric("embedding_scale", "embedding multiplier"),
    _numeric("residual_scale", "residual multiplier"),
    _numeric("logit_scale", "logit multiplier"),
    _numeric("init_std", "standard deviation of initial weights"),
    _described(
        "tied_embeddings",
        "tied embeddings",
        lambda m: "tied embeddings" if m.tied_embeddings else "untied output layer",
    ),
    _numeric("embedding_size", "embedding width"),
    _numeric("vocab", "vocabulary size"),
    _described(
        "vocab_multiple",
        "vocabulary padding",
        lambda m: (
            f"vocabulary padded to a multiple of {m.vocab_multiple}" if m.vocab_multiple else "unpadded vocabulary"
        ),
    ),
    _numeric("seq", "sequence length"),
    _described("frozen_params", "frozen parameters", lambda m: f"{m.frozen_params:,} frozen parameters"),
    _described("not_understood", "properties unknown to tuner", lambda m: listed(m.not_understood) or "nothing"),
)

_WORKLOAD: Final = (
    _numeric("global_batch", "global batch", "workload"),
    _described(
        "precision",
        "precision",
        _precision,
        "precision_recipe",
        subject="workload",
    ),
    _described("attention", "attention kernel", lambda w: f"{w.attention} attention", subject="workload"),
    _described("optimizer", "optimizer", lambda w: f"the {w.optimizer} optimizer", subject="workload"),
    _numeric("tokens", "training tokens", "workload"),
    _described(
        "ramp",
        "batch ramp-up",
        lambda w: (
            f"a batch ramp-up from {w.ramp.start} in steps of {w.ramp.increment}" if w.ramp else "no batch ramp-up"
        ),
        subject="workload",
    ),
)

_TOPOLOGY: Final = (
    _numeric("tp", "tensor parallelism", "topology"),
    _numeric("pp", "pipeline parallelism", "topology"),
    _described(
        "vpp",
        "interleaved pipeline stages",
        lambda t: f"interleaved pipeline stages (vpp {t.vpp})" if t.vpp > 1 else "no interleaving",
        subject="topology",
    ),
    _numeric("cp", "context parallelism", "topology"),
    _numeric("dp", "data parallelism", "topology"),
    _numeric("micro_batch", "micro-batch size", "topology"),
    _numeric("ep", "expert parallelism", "topology"),
    _numeric("etp", "expert tensor parallelism", "topology"),
    _described("dispatcher", "dispatcher", lambda t: f"the {t.dispatcher} dispatcher", subject="topology"),
    _switched("moe_overlap", "overlap of the token exchange", "topology"),
    _numeric("zero", "ZeRO stage", "topology"),
    _switched("sequence_parallel", "sequence parallelism", "topology"),
    _described(
        "recompute",
        "recomputation",
        lambda t: f"{t.recompute if t.recompute != 'none' else 'no'} recompute",
        subject="topology",
    ),
    _described(
        "partition",
        "pipeline partition",
        lambda t: {
            "layers": "layers spread evenly over the stages",
            "embedding": "a pipeline partition that counts embedding and output as layers",
            "layout": "fewer layers on the last pipeline stage",
        }[t.partition],
        subject="topology",
    ),
    _described(
        "offload",
        "offload to main memory",
        lambda t: offload_words(t.offload),
        subject="topology",
    ),
    _described(
        "hsdp",
        "replica groups",
        lambda t: f"hybrid sharding with {t.hsdp} replica groups" if t.hsdp > 1 else "no hybrid sharding",
        subject="topology",
    ),
)

PROPERTIES: Final[Mapping[str, Property]] = {one.name: one for one in (*_MODEL, *_WORKLOAD, *_TOPOLOGY)}
"""Every property, by name."""

MODEL_PROPERTIES: Final = tuple(one.name for one in _MODEL)

NOT_PROPERTIES: Final[Mapping[Subject, frozenset[str]]] = {
    "model": frozenset({"name", "read_as"}),
    "workload": frozenset({"model", "framework", "stack", "fused_norms", "plain_layers", "parallel_loss", "routing"}),
    "topology": frozenset({"nodes", "heads", "shape", "global_batch"}),
}
"""Fields that no trainer reads: names, those of the launch or of the cost model only, and overrides that are already
part of a production run's workload.
"""

_SUBJECTS: Final[Mapping[Subject, type]] = {"model": Model, "workload": Workload, "topology": Topology}


def uncovered() -> Iterator[tuple[Subject, str, Any]]:
    """Yield each field that no property covers, with its default; a test requires that there are none."""
    for subject, kind in _SUBJECTS.items():
        covered = {name for one in PROPERTIES.values() if one.subject == subject for name in one.fields}
        for field in fields(kind):
            if field.name not in covered | NOT_PROPERTIES[subject]:
                yield subject, field.name, _default(field)


def _default(field: Field[Any]) -> Any:
    return None if field.default is MISSING else field.default
