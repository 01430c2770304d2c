"""A transformer to train: its sizes, and everything else that determines what is trained.

Sizes left at zero get a default that the field documents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final, Literal

from tuner.core.delta_net import DeltaNet
from tuner.core.errors import InputError
from tuner.core.experts import Experts, Latent
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.shape import Shape
from tuner.core.validation import check_fields

Positions = Literal["learned", "rotary", "alibi", "none"]
Norm = Literal["layernorm", "rmsnorm"]
NormPlacement = Literal["before", "after", "around", "after_residual"]
Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "xielu"]
QkNorm = Literal["head", "heads", "width"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only transformer. Sizes left at zero get a default that the field documents."""

    name: str = "unnamed"
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int
    """Tokens in a training sequence."""
    kv_heads: int = 0
    """Key/value heads; 0: as many as heads."""
    ffn: int = 0
    """Width of the MLP; 0: four times hidden, or the experts' width in a mixture of experts."""
    head_size: int = 0
    """Width of one head; 0: hidden / heads."""
    gated_mlp: bool = False
    """Three MLP matrices (SwiGLU, GeGLU) instead of two."""
    tied_embeddings: bool = True
    """The output layer shares the input embedding's weights."""
    positions: Positions = "learned"
    max_positions: int = 0
    """Longest sequence that the model allows, the rows of a learned position embedding; 0: seq."""
    norm: Norm = "layernorm"
    norms_per_layer: int = 2
    qk_norm: bool = False
    """A norm on queries and on keys; `qk_norm_span` says over what."""
    embedding_norm: bool = False
    final_norm: bool = True
    qkv_bias: bool = True
    attention_bias: bool = True
    """Bias of the attention's output projection."""
    mlp_bias: bool = True
    head_bias: bool = False
    embedding_size: int = 0
    """Width of an embedding that is projected to hidden; 0: hidden, without a projection."""
    vocab_multiple: int = 128
    """Megatron pads the vocabulary to a multiple of this times tp; 0: no padding."""
    frozen_params: int = 0
    """Parameters with neither gradient nor optimizer state, in addition to the trained ones."""
    experts: Experts | None = None
    """Experts instead of the MLP in some or all layers; None: a dense model."""
    latent: Latent | None = None
    """Multi-head latent attention; its sizes replace `head_size` and `kv_heads`."""
    delta_net: DeltaNet | None = None
    """Gated DeltaNet instead of attention in most layers; None: every layer has attention."""
    attention_gate: bool = False
    """Attention's output is multiplied by a sigmoid gate, which is projected beside the queries (Qwen3-Next)."""
    mtp_layers: int = 0
    """Layers that predict further tokens during training (multi-token prediction), in addition to `layers`."""

    activation: Activation | None = None
    """Activation of the MLP, of its gate if it is gated (silu: SwiGLU, gelu_tanh: GeGLU); None: see
    `mlp_activation`."""
    glu_clamp: float = 0.0
    """Bound of a gated MLP's two inputs, of the gate from above only (gpt-oss); 0: none."""
    glu_offset: float = 0.0
    """Added to the ungated input of a gated MLP (gpt-oss)."""
    norm_epsilon: float = 1e-5
    norm_offset: bool = False
    """Norm weights are stored as their difference from one."""
    norm_placement: NormPlacement = "before"
    """Whether norms precede attention and MLP, follow them (before the residual is added), do both, or follow the
    residual's addition (the original transformer)."""
    norm_weight: bool = True
    """Norms have trained weights."""
    norm_bias: bool = True
    """Norms of the kind layernorm have trained biases."""
    qk_norm_span: QkNorm = "head"
    """The span over which queries and keys are normalised: each head with the same weights, each head with its own
    weights and no bias, or the whole width of the projection."""
    rotary_base: float = 10_000.0
    rotary_fraction: float = 1.0
    """Share of each head's width that is rotated."""
    rotary_interleaved: bool = False
    """Whether pairs are neighbours (GPT-J) instead of the two halves of a head (GPT-NeoX)."""
    rotary_local_base: float = 0.0
    """Base of the layers with a sliding window, which `rotary_scaling` then leaves alone; 0: `rotary_base`."""
    rotary_skip: int = 0
    """Every n-th layer has no rotary embedding; 0: all have it."""
    rotary_scaling: RotaryScaling | None = None
    attention_dropout: float = 0.0
    """Dropout of the attention's probabilities."""
    hidden_dropout: float = 0.0
    """Dropout of what attention and MLP add to the residual stream."""
    embedding_dropout: float = 0.0
    """Dropout of the embedding's output."""
    parallel_attention: bool = False
    """Attention and MLP read the same input, and their outputs are added together."""
    sliding_window: int = 0
    """Tokens that a position attends to, itself included; 0: all before it."""
    window_start: int = 0
    """Layers before the first one with a sliding window."""
    window_skip: int = 0
    """From `window_start` on, every n-th layer attends to all tokens despite `sliding_window`; 0: none does."""
    attention_sinks: bool = False
    """A trained logit per head that takes part in the softmax of the attention (gpt-oss)."""
    attention_softcap: float = 0.0
    """Bound of the attention scores, c in c tanh(x / c); 0: none."""
    logit_softcap: float = 0.0
    """The same bound of the logits; 0: none."""
    attention_scale: float = 0.0
    """Factor of the attention scores; 0: 1 / sqrt(head size)."""
    embedding_scale: float = 1.0
    """Factor of the embedding's output."""
    residual_scale: float = 1.0
    """Factor of what attention and MLP add to the residual stream."""
    logit_scale: float = 1.0
    """Factor of the logits."""
    mtp_loss: float = 0.1
    """Weight of the mean loss of multi-token prediction (DeepSeek-V3: 0.3 at first, then 0.1)."""
    init_std: float = 0.02
    """Standard deviation of the initial weights."""
    not_understood: tuple[str, ...] = ()
    """Properties of the description that no field expresses: the model can be planned but not exported."""
    read_as: str | None = None
    """The known family that an unknown one was read as."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=_FOLLOWING)
        object.__setattr__(self, "not_understood", tuple(self.not_understood))
        follows = {
            "kv_heads": self.heads,
            "ffn": self.experts.ffn if self.experts else 4 * self.hidden,
            "max_positions": self.seq,
            "embedding_size": self.hidden,
        }
        for name, value in follows.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        if self.delta_net and self.sliding_window:
            raise InputError("model field sliding_window must be 0 with delta_net.")
        if self.attention_gate and self.latent:
            raise InputError("model field attention_gate must be false with latent.")
        if self.experts and not self.moe_layers:
            raise InputError(
                f"model field experts leaves none of the {self.layers} layers with experts "
                f"(dense_layers={self.experts.dense_layers}, period={self.experts.period})."
            )

    @property
    def shape(self) -> Shape:
        """Width and depth."""
        return Shape(hidden=self.hidden, layers=self.layers)

    @property
    def mlp_activation(self) -> Activation:
        """Activation of the MLP; default: silu if the MLP is gated, else gelu_tanh (GPT-2's)."""
        return self.activation or ("silu" if self.gated_mlp else "gelu_tanh")

    @property
    def head_width(self) -> int:
        """Columns of one head, except in latent attention."""
        return self.head_size or self.hidden // self.heads

    @property
    def query_width(self) -> int:
        """Columns of the query projection."""
        if self.latent:
            return self.heads * self.latent.key_size
        return self.heads * self.head_size if self.head_size else self.hidden

    @property
    def kv_width(self) -> int:
        """Columns of the key projection, and of the value projection; with latent attention, of all heads' keys."""
        if self.latent:
            return self.query_width
        return self.kv_heads * self.head_size if self.head_size else self.hidden * self.kv_heads // self.heads

    @property
    def delta_layers(self) -> int:
        """Layers with Gated DeltaNet instead of attention."""
        delta = self.delta_net
        return sum(not delta.has_attention(layer) for layer in range(self.layers)) if delta else 0

    @property
    def moe_layers(self) -> int:
        """Layers with experts, without those of multi-token prediction."""
        return self.experts.moe_layers_before(self.layers) if self.experts else 0

    @property
    def dense_mlp_layers(self) -> int:
        """Layers with an MLP."""
        return self.layers - self.moe_layers

    def is_moe_layer(self, layer: int) -> bool:
        """Return whether a layer, counted from zero, has experts instead of an MLP."""
        return self.experts is not None and self.experts.is_moe_layer(layer)

    def is_windowed_layer(self, layer: int) -> bool:
        """Return whether a layer, counted from zero, has the sliding window."""
        place = layer - self.window_start
        whole = self.window_skip and not (place + 1) % self.window_skip
        return bool(self.sliding_window) and place >= 0 and not whole

    @property
    def longest_seq(self) -> int:
        """Tokens that its positions reach; a stated length includes Llama 3's scaling, but not that of Qwen's yarn."""
        scaling = self.rotary_scaling
        if scaling is None or (scaling.kind == "llama3" and self.max_positions > scaling.original_seq):
            return self.max_positions
        return max(self.max_positions, int(scaling.factor * scaling.original_seq))

    @property
    def window(self) -> int:
        """Tokens that a position of a windowed layer attends to; 0 if that is a whole sequence."""
        return self.sliding_window if self.sliding_window < self.seq else 0

    @property
    def windowed_share(self) -> float:
        """Share of the layers whose window is shorter than a sequence."""
        return sum(map(self.is_windowed_layer, range(self.layers))) / self.layers if self.window else 0.0

    @property
    def scored_tokens(self) -> float:
        """Twice the tokens that a token attends to, in the mean of the layers with attention; without windows as many
        as a sequence has."""
        inside = self.window * (2 - self.window / self.seq)
        return (1 - self.windowed_share) * self.seq + self.windowed_share * inside

    @property
    def attention_matrices(self) -> int:
        """Elements of the matrices of one layer's attention."""
        if self.latent:
            return self.latent.matrices(self.hidden, self.heads)
        return self.hidden * ((2 + self.attention_gate) * self.query_width + 2 * self.kv_width)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert of one layer; 0 in a dense model."""
        return self._mlp_parameters(self.experts.ffn, bias=self.experts.expert_bias) if self.experts else 0

    @property
    def routed_parameters(self) -> int:
        """Parameters of all routed experts, those of multi-token prediction included; 0 in a dense model."""
        if self.experts is None:
            return 0
        layers = self.moe_layers + self.mtp_layers * self.is_moe_layer(self.layers - 1)
        return layers * self.experts.count * self.expert_parameters

    @property
    def shared_parameters(self) -> int:
        """Parameters of one layer's router and shared experts; 0 in a dense model."""
        if self.experts is None:
            return 0
        experts = self.experts
        router = experts.count * (self.hidden + experts.router_linear_bias)
        shared = self._mlp_parameters(experts.shared_ffn, bias=self.mlp_bias) if experts.shared_ffn else 0
        return router + shared + experts.shared_gate * self.hidden

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer with attention, without its MLP or experts: attention and norms."""
        biases, norms = (1 + self.attention_gate) * self.query_width + 2 * self.kv_width, self._qk_norm_parameters
        if self.latent:
            biases, norms = self.latent.ranks + self.latent.rope_size, self.latent.ranks * self._norm_tensors
        attention = self.attention_matrices + self.qkv_bias * biases + self.attention_bias * self.hidden
        return attention + norms + self.attention_sinks * self.heads + self.norms_per_layer * self._norm_parameters

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer with attention and an MLP."""
        return self.attention_parameters + self._mlp_parameters(self.ffn, bias=self.mlp_bias)

    @property
    def moe_layer_parameters(self) -> int:
        """Parameters of one layer with attention and experts, all of them counted; 0 in a dense model."""
        if self.experts is None:
            return 0
        return self.attention_parameters + self.shared_parameters + self.experts.count * self.expert_parameters

    @property
    def mtp_parameters(self) -> int:
        """Parameters of the layers of multi-token prediction.

        Each is a layer with attention and an MLP like that of the last one, a projection of the hidden state and the
        next token's embedding, and three norms (DeepSeek-V3, section 2.2); embedding and output layer are those of the
        model.
        """
        last = self.moe_layer_parameters if self.is_moe_layer(self.layers - 1) else self.layer_parameters
        return self.mtp_layers * (last + 2 * self.hidden**2 + 3 * self._norm_parameters)

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first layer: words, positions, the projection to hidden, and the embedding's norm."""
        words = self.vocab * self.embedding_size
        positions = self.max_positions * self.hidden if self.positions == "learned" else 0
        projection = 2 * self.embedding_size * self.hidden if self.embedding_size != self.hidden else 0
        return words + positions + projection + self.embedding_norm * self._norm_parameters

    @property
    def head_parameters(self) -> int:
        """Parameters after the last layer; the output matrix counts only if it is not tied to the embedding."""
        matrix = 0 if self.tied_embeddings else self.vocab * self.embedding_size
        return matrix + self.head_bias * self.vocab + self.final_norm * self._norm_parameters

    @property
    def parameters(self) -> int:
        """Trained parameters, each counted once, with the unpadded vocabulary and multi-token prediction."""
        layers = self.dense_mlp_layers * self.layer_parameters + self.moe_layers * self.moe_layer_parameters
        if self.delta_net:
            delta = self.delta_net.parameters(self.hidden) + self.norms_per_layer * self._norm_parameters
            layers += self.delta_layers * (delta - self.attention_parameters)
        return layers + self.mtp_parameters + self.embedding_parameters + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that a token passes through, as model cards count them: with the embedding and the output layer,
        without multi-token prediction. In a dense model, all of them."""
        if self.experts is None:
            return self.parameters - self.mtp_parameters
        idle = self.moe_layers * (self.experts.count - self.experts.top_k) * self.expert_parameters
        return self.parameters - self.mtp_parameters - idle

    def _mlp_parameters(self, width: int, *, bias: bool) -> int:
        inputs = 2 if self.gated_mlp else 1
        mlp = (inputs + 1) * self.hidden * width + bias * (inputs * width + self.hidden)
        return mlp + 2 * (self.activation == "xielu")

    @property
    def _qk_norm_parameters(self) -> int:
        width = 2 * self.head_width if self.qk_norm_span == "head" else self.query_width + self.kv_width
        return self.qk_norm * width * (1 if self.qk_norm_span == "heads" else self._norm_tensors)

    @property
    def _norm_parameters(self) -> int:
        return self.hidden * self._norm_tensors

    @property
    def _norm_tensors(self) -> int:
        return self.norm_weight + (self.norm == "layernorm" and self.norm_bias)

    def padded_vocab(self, tp: int) -> int:
        """Rows of the embedding after Megatron's padding to a multiple of `vocab_multiple` x tp."""
        multiple = self.vocab_multiple * tp
        return -(-self.vocab // multiple) * multiple if multiple else self.vocab

    def with_heads(self, heads: int) -> Model:
        """Return the model with another number of heads; without grouped-query attention, key/value heads follow."""
        kv_heads = heads if self.kv_heads == self.heads else self.kv_heads
        return replace(self, heads=heads, kv_heads=kv_heads)

    def with_shape(self, shape: Shape) -> Model:
        """Return the model with another width and depth; MLP and experts keep their ratio to hidden."""
        ffn = self.ffn * shape.hidden // self.hidden
        embedding = 0 if self.embedding_size == self.hidden else self.embedding_size
        scale = self.embedding_scale
        if math.isclose(scale, math.sqrt(self.hidden)):  # Gemma's follows hidden
            scale = math.sqrt(shape.hidden)
        return replace(
            self,
            experts=self.experts.scaled(shape.hidden, self.hidden) if self.experts else None,
            hidden=shape.hidden,
            layers=shape.layers,
            ffn=ffn,
            embedding_size=embedding,
            embedding_scale=scale,
        )


PARTS: Final = {"experts": Experts, "latent": Latent, "delta_net": DeltaNet}
"""Fields that are tables of sizes."""

_NAMES: Final = tuple(field.name for field in fields(Model))
IDENTITY: Final = _NAMES[_NAMES.index("activation") :]
"""Fields that determine what is trained but hardly affect its cost."""

_FOLLOWING: Final = frozenset(
    {"kv_heads", "ffn", "head_size", "max_positions", "embedding_size", "vocab_multiple", "frozen_params"}
    | {"norms_per_layer", "mtp_layers", "rotary_skip", "sliding_window", "window_skip", "window_start"}
)
