"""Parts of a model that Megatron-LM's arguments describe besides a dense transformer: experts, latent attention,
windows, scaled positions, attention sinks.

The meaning of the flags is documented in `tuner/export/megatron_core.py` and `megatron_experts.py`, which write them.
Megatron-LM's defaults count for missing flags. Coefficients of losses and the capacity of experts belong to the
training as much as to the model: one that the model does not state is taken from the command.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.megatron_stack import CORE_OPTIMIZERS
from tuner.core.model import Model
from tuner.core.text import listed, shown
from tuner.launch.trainers.kind import Flags, is_on, real
from tuner.launch.trainers.megatron_arguments import OTHER_LAYERS, check_parts, describes_model, with_unexpressed
from tuner.launch.trainers.megatron_positions import (
    SCALES,
    Value,
    check_growth,
    grows_alike,
    growth,
    latent_positions,
    positions,
)

_BALANCED: Final = ("aux_loss", "seq_aux_loss")
"""Values of `--moe-router-load-balancing-type` with a loss that a field of the experts expresses."""
_VARIANTS: Final = ("--experimental-attention-variant", "--linear-attention-type")
"""The flag of another attention, and its name before megatron-core 0.16."""
_DELTA_NETS: Final = ("gated_delta_net", "gdn")
"""Values of `--experimental-attention-variant` for Gated DeltaNet, the second in recent releases."""
_LONGEST_PATTERN: Final = 10_000

Layers = Callable[[int], bool]


def check_special_parts(flags: Flags, model: Model) -> None:
    """Raise if the arguments, or Megatron-LM's defaults for missing ones, describe other parts than the model has."""
    if not describes_model(flags):
        return
    others = [flag for flag in OTHER_LAYERS if flag in flags]
    if others and not model.not_understood:
        raise InputError(
            f"--command has {listed(others)}, which no field of the model {shown(model.name)} expresses; remove it, or "
            "write a template with fields in --command, without --trainer."
        )
    for flag, own, default in values_of_parts(flags, model):
        _compare(flags, model, flag, own, default)
    check_growth(flags, model)
    check_parts(flags, model, {"--linear-attention-freq": model.delta_net is not None})
    _check_window(flags, model)
    for flag, reason in contradictions(flags, model):
        raise contradiction(flag, flags[flag], reason)


def values_of_parts(flags: Flags, model: Model) -> Iterator[tuple[str, Value, Value]]:
    """Yield flags of all parts with the model's value and Megatron-LM's default; a bool is a switch."""
    yield from _experts(flags, model)
    yield from _latent(flags, model)
    yield from _delta_net(flags, model)
    yield from positions(flags, model)
    yield from _other(model)


def contradictions(flags: Flags, model: Model) -> Iterator[tuple[str, str]]:
    """Yield the flags that describe another part than the model has, with the reason."""
    for flag, own, _ in values_of_parts(flags, model):
        if flag in flags and not agrees(flags, flag, own):
            yield flag, whose_value(own)
    for flag in SCALES:
        if flag in flags and not grows_alike(flags, model):
            yield flag, f"which multiplies rotated queries and keys by {growth(model):g}"
    for flag, reason, places in _places(flags, model):
        if flag in flags and not places:
            yield flag, reason
    if experts := model.experts:
        for flag, own, found in training(flags, experts):
            if own and flag in flags and own != found:
                yield flag, whose_value(own)


def contradiction(flag: str, value: str, reason: str) -> InputError:
    """Return the error for a flag with another value than the model."""
    return InputError(f"{flag} {value} in --command contradicts the model, {reason}; correct --model or the command.")


def agrees(flags: Flags, flag: str, own: Value) -> bool:
    """Return whether a flag has the model's value; numbers may be rounded."""
    if isinstance(own, bool):
        return is_on(flags, flag) == own
    return own == flags[flag] if isinstance(own, str) else math.isclose(own, real(flags, flag), rel_tol=1e-6)


def with_training(flags: Flags, model: Model) -> Model:
    """Return the model with the settings of training of the arguments, and the flags that no field of it expresses."""
    if not describes_model(flags):
        return with_unexpressed(flags, model, optimizers=CORE_OPTIMIZERS)
    if experts := model.experts:
        changes: dict[str, Any] = {
            "aux_loss": _balance(flags)[1],
            "aux_loss_per_sequence": _balance(flags)[0] == "seq_aux_loss",
            "z_loss": _optional(flags, "--moe-z-loss-coeff"),
            "capacity_factor": _optional(flags, "--moe-expert-capacity-factor"),
        }
        if "--moe-router-bias-update-rate" in flags:
            changes["router_bias_rate"] = real(flags, "--moe-router-bias-update-rate")
        model = replace(model, experts=replace(experts, **changes))
    if model.mtp_layers:
        model = replace(model, mtp_loss=_optional(flags, "--mtp-loss-scaling-factor", 0.1))
    balance = flags.get("--moe-router-load-balancing-type", "none")
    is_other = model.experts is not None and balance not in (*_BALANCED, "none")
    other = [f"--moe-router-load-balancing-type {balance}"] * is_other
    return with_unexpressed(flags, model, other, optimizers=CORE_OPTIMIZERS)


def _experts(flags: Flags, model: Model) -> Iterator[tuple[str, Value, Value]]:
    """Yield flags of experts with the model's value and Megatron-LM's default; a bool is a switch."""
    experts = model.experts
    if experts is None:
        return
    # a single group is none
    if experts.router_groups > 1 or _optional(flags, "--moe-router-num-groups") > 1:
        is_grouped = experts.router_groups > 1
        yield "--moe-router-num-groups", experts.router_groups * is_grouped, 0
        yield "--moe-router-group-topk", experts.router_top_groups * is_grouped, 0
    yield "--moe-router-score-function", experts.router, "softmax"
    if experts.router == "softmax":
        yield "--moe-router-pre-softmax", not experts.normalized, False
    yield "--moe-router-topk-scaling-factor", experts.scale, 1.0
    yield "--moe-router-enable-expert-bias", experts.router_bias, False
    yield "--moe-apply-probs-on-input", experts.weights_before, False
    yield "--moe-shared-expert-gate", experts.shared_gate, False


def training(flags: Flags, experts: Experts) -> Iterator[tuple[str, Value, Value]]:
    """Yield flags of training with the value that the model states, if any, and that of the command."""
    kind, coefficient = _balance(flags)
    if kind in _BALANCED:
        yield "--moe-aux-loss-coeff", experts.aux_loss, coefficient
    if experts.aux_loss and kind in (*_BALANCED, "none"):
        yield "--moe-router-load-balancing-type", _BALANCED[experts.aux_loss_per_sequence], kind
    yield "--moe-z-loss-coeff", experts.z_loss, _optional(flags, "--moe-z-loss-coeff")
    yield "--moe-expert-capacity-factor", experts.capacity_factor, _optional(flags, "--moe-expert-capacity-factor")


def _balance(flags: Flags) -> tuple[str, float]:
    """Return the kind of load balancing and the coefficient of its loss; 0 where no loss is the model's."""
    kind = flags.get("--moe-router-load-balancing-type", "aux_loss")
    return kind, _optional(flags, "--moe-aux-loss-coeff") if kind in _BALANCED else 0.0


def _latent(flags: Flags, model: Model) -> Iterator[tuple[str, Value, Value]]:
    latent = model.latent
    if latent is None:
        return
    yield "--kv-lora-rank", latent.kv_rank, 32
    yield "--q-lora-rank", latent.query_rank, 0
    yield "--qk-head-dim", latent.nope_size, 128
    yield "--qk-pos-emb-head-dim", latent.rope_size, 64
    yield "--v-head-dim", latent.value_size, 128
    yield "--qk-layernorm", True, False
    yield from latent_positions(flags, model)


def _delta_net(flags: Flags, model: Model) -> Iterator[tuple[str, Value, Value]]:
    delta, (name, former) = model.delta_net, _VARIANTS
    flag = former if former in flags else name
    own = flags[flag] if flags.get(flag) in _DELTA_NETS else _DELTA_NETS[0]
    yield flag, own if delta else "none", "none"
    yield "--attention-output-gate", model.attention_gate, False
    if delta is None:
        return
    yield "--linear-conv-kernel-dim", delta.kernel, 4
    yield "--linear-key-head-dim", delta.key_size, 128
    yield "--linear-value-head-dim", delta.value_size, 128
    yield "--linear-num-key-heads", delta.key_heads, 16
    yield "--linear-num-value-heads", delta.value_heads, 32


def _other(model: Model) -> Iterator[tuple[str, Value, Value]]:
    yield "--softmax-type", "learnable" if model.attention_sinks else "vanilla", "vanilla"
    yield "--mtp-num-layers", model.mtp_layers, 0
    yield "--activation-func-clamp-value", model.glu_clamp, 0.0
    yield "--glu-linear-offset", model.glu_offset, 0.0


def _compare(flags: Flags, model: Model, flag: str, own: Value, default: Value) -> None:
    """Raise if a flag, or Megatron-LM's default without it, has another value than the model."""
    if isinstance(own, bool):
        check_parts(flags, model, {flag: own})
    elif flag not in flags and default != own:
        raise InputError(
            f"--command lacks {flag}, and Megatron-LM's default of {flag} {_spelt(default)} contradicts the model, "
            f"whose value is {_spelt(own)}; correct --model or the command."
        )
    elif flag in flags and not agrees(flags, flag, own):
        raise contradiction(flag, flags[flag], whose_value(own))


def whose_value(own: Value) -> str:
    """Return the reason of a contradiction with a value of the model."""
    return f"whose value is {_spelt(own)}"


def _spelt(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def _check_window(flags: Flags, model: Model) -> None:
    """Raise if Megatron-LM's default gives layers a window that the model lacks."""
    if not model.window or "--window-size" not in flags or "--window-attn-skip-freq" in flags:
        return
    if not all(map(model.is_windowed_layer, range(model.layers))):
        raise InputError(
            "--command lacks --window-attn-skip-freq, and without it all layers have the window, unlike the model; "
            "correct --model or the command."
        )


def placed(flags: Flags, model: Model) -> set[str]:
    """Return the flags that place parts of the model in layers."""
    return {flag for flag, *_ in _places(flags, model)}


def _places(flags: Flags, model: Model) -> Iterator[tuple[str, str, bool]]:
    """Yield flags of layers with experts, windows or rotary embeddings, a reason, and whether the model agrees."""

    def same(flag: str, parts: str, has: Layers, of_number: Callable[[int, int], bool]) -> tuple[str, str, bool]:
        found = flag not in flags or [*map(has, range(model.layers))] == _layers(flags, flag, model.layers, of_number)
        return flag, f"which has {parts} in other layers", found

    if model.experts:
        yield same("--moe-layer-freq", "experts", model.is_moe_layer, lambda layer, every: layer % every == 0)
    if delta := model.delta_net:
        yield same(
            "--linear-attention-freq",
            "Gated DeltaNet",
            lambda layer: not delta.has_attention(layer),
            lambda layer, n: (layer + 1) % n != 0,
        )
    if skip := model.rotary_skip:
        turned = "rotary embeddings"
        yield same("--no-rope-freq", turned, lambda layer: not (layer + 1) % skip, lambda layer, n: not (layer + 1) % n)
    if model.window:
        sizes = re.findall(r"-?[0-9]+", flags.get("--window-size", ""))
        before = model.sliding_window - 1
        yield "--window-size", f"whose value is {before},0", sizes[:1] == [str(before)]
        yield same("--window-attn-skip-freq", "windows", model.is_windowed_layer, lambda layer, n: (layer + 1) % n != 0)


def _layers(flags: Flags, flag: str, layers: int, of_number: Callable[[int, int], bool]) -> list[bool]:
    """Return which layers a flag marks: by a number of layers, or by a list such as `([0]*3+[1]*45)`."""
    text = flags[flag]
    if text.isdecimal() and 0 < int(text) < _LONGEST_PATTERN:
        return [of_number(layer, int(text)) for layer in range(layers)]
    try:
        marks = _evaluated(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        marks = None
    if not isinstance(marks, list):
        raise InputError(f"{flag} {shown(text)} in --command is neither a number nor a list such as ([0]*3+[1]*45).")
    return [mark == 1 for mark in marks]


def _evaluated(node: ast.expr) -> list[int] | int:
    """Return the value of a list, a sum of lists or a multiple of one."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List):
        return [_whole(_evaluated(element)) for element in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _evaluated(node.left), _evaluated(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list):
            marks, times = (left, _whole(right)) if isinstance(left, list) else (right, left)
            if isinstance(marks, list) and isinstance(times, int) and len(marks) * times <= _LONGEST_PATTERN:
                return marks * times
    raise ValueError(ast.dump(node)[:80])


def _whole(value: list[int] | int) -> int:
    if isinstance(value, int):
        return value
    raise ValueError


def _optional(flags: Flags, flag: str, default: float = 0.0) -> float:
    """Return the number of a flag; the default if it is missing."""
    return real(flags, flag) if flag in flags else default
