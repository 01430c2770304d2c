"""Parts of a model that a plain transformer lacks: a mixture of experts, and multi-head latent attention."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, overload

from tuner.core.errors import InputError
from tuner.core.validation import check_fields

Router = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts in place of the MLP, in some or all layers. Each token passes through `top_k` experts."""

    count: int
    """Routed experts of one layer."""
    top_k: int
    """Routed experts that a token passes through."""
    ffn: int
    """Width of one routed expert."""
    shared_ffn: int = 0
    """Width of all shared experts together, which every token passes through; 0: none."""
    shared_gate: bool = False
    """The shared experts' output is multiplied by a sigmoid gate of the token (Qwen2-MoE)."""
    dense_layers: int = 0
    """Leading layers with an MLP instead of experts."""
    period: int = 1
    """After the leading dense layers, the last layer of every `period` layers has experts and the others have an MLP.

    Counted from zero, layer i has experts if i >= dense_layers and (i - dense_layers + 1) is a multiple of period.
    """
    router: Router = "softmax"
    """Scores of the experts."""
    router_bias: bool = False
    """A bias per expert that is added to the scores for the choice of experts alone and is balanced without a gradient
    (DeepSeek-V3's e_score_correction_bias)."""
    router_bias_rate: float = field(default=0.001, repr=False)
    """Step by which `router_bias` is balanced (DeepSeek-V3: 0.001). Not part of the repr, which seeds the simulated
    noise of a run: it does not affect time."""
    router_linear_bias: bool = False
    """The router's projection has a trained bias (gpt-oss)."""
    router_groups: int = 0
    """Groups of experts, of which a token uses `router_top_groups`; 0: no groups."""
    router_top_groups: int = 0
    router_group_scores: int = 0
    """Best scores of a group whose sum ranks it: 1 in DeepSeek-V2, 2 in DeepSeek-V3."""
    normalized: bool = True
    """The weights of the chosen experts are divided by their sum (also: a softmax over the chosen scores)."""
    scale: float = 1.0
    """Factor of the routed experts' output (routed_scaling_factor)."""
    weights_before: bool = False
    """The weights multiply the experts' inputs instead of their outputs (Llama 4)."""
    capacity_factor: float = 0.0
    """Largest number of tokens per expert, over the mean; more are dropped. 0: dropless."""
    expert_bias: bool = False
    """The experts' matrices have biases (gpt-oss)."""
    aux_loss: float = 0.0
    """Coefficient of the load-balancing loss."""
    aux_loss_per_sequence: bool = False
    """The load is balanced within each sequence instead of the micro-batch (DeepSeek-V3's seq_aux)."""
    z_loss: float = 0.0
    """Coefficient of the router's z-loss."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=_MAY_BE_ZERO)
        if self.top_k > self.count:
            raise InputError(f"experts field top_k must be at most count={self.count}, not {self.top_k}.")
        if self.router_groups and self.count % self.router_groups:
            raise InputError(
                f"experts field router_groups must divide count={self.count}, which {self.router_groups} does not."
            )
        if self.router_groups and not self.router_top_groups:
            raise InputError(
                f"experts field router_top_groups must be at least 1 with router_groups={self.router_groups}, not 0."
            )
        if self.router_top_groups > self.router_groups:
            raise InputError(
                f"experts field router_top_groups must be at most router_groups={self.router_groups}, "
                f"not {self.router_top_groups}."
            )

    @property
    def token_ffn(self) -> int:
        """Width of all the experts that one token passes through: those that it is routed to and the shared ones."""
        return self.top_k * self.ffn + self.shared_ffn

    @overload
    def moe_layers_before(self, layer: int) -> int: ...

    @overload
    def moe_layers_before(self, layer: Any) -> Any: ...

    def moe_layers_before(self, layer: Any) -> Any:
        """Return how many of the layers 0 to `layer` - 1 have experts; `layer` may be an array."""
        return (layer - self.dense_layers) // self.period * (layer > self.dense_layers)

    def scaled(self, hidden: int, before: int) -> Experts:
        """Return the experts of a model with another width, to which their widths keep the ratio."""
        return replace(self, ffn=self.ffn * hidden // before, shared_ffn=self.shared_ffn * hidden // before)

    def is_moe_layer(self, layer: int) -> bool:
        """Return whether a layer, counted from zero, has experts instead of an MLP."""
        return layer >= self.dense_layers and (layer - self.dense_layers + 1) % self.period == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2): keys and values are projected from a narrow latent vector."""

    query_rank: int = 0
    """Width of the queries' latent vector; 0: queries are projected from hidden."""
    kv_rank: int
    """Width of the latent vector of keys and values."""
    nope_size: int
    """Part of a query's and key's head without rotary embedding."""
    rope_size: int
    """Part of a query's and key's head with rotary embedding; all heads share one key of this width."""
    value_size: int
    """Width of a value's head."""
    norm_epsilon: float = 1e-6
    """Epsilon of the latent vectors' norms, which DeepSeek's own code sets apart from the model's."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=frozenset({"query_rank"}))

    @property
    def direct_queries(self) -> bool:
        """Whether queries have no latent vector."""
        return not self.query_rank

    @property
    def key_size(self) -> int:
        """Width of a query's and of a key's head."""
        return self.nope_size + self.rope_size

    @property
    def ranks(self) -> int:
        """Columns of the latent vectors, which have norms."""
        return self.query_rank + self.kv_rank

    @overload
    def matrices(self, hidden: int, heads: int) -> int: ...

    @overload
    def matrices(self, hidden: Any, heads: Any) -> Any: ...

    def matrices(self, hidden: Any, heads: Any) -> Any:
        """Return the elements of the matrices of one layer's attention; the sizes may be arrays."""
        queries, rank = heads * self.key_size, self.query_rank
        projections = rank * (hidden + queries) if rank else hidden * queries
        down = hidden * (self.kv_rank + self.rope_size)
        up = self.kv_rank * heads * (self.nope_size + self.value_size)
        return projections + down + up + heads * self.value_size * hidden


_MAY_BE_ZERO: Final = frozenset(
    {"shared_ffn", "dense_layers", "router_groups", "router_top_groups", "router_group_scores"}
)
