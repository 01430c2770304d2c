"""Parts of a model that Megatron-LM's arguments describe besides a dense transformer: experts, latent attention,
windows, scaled positions, attention sinks.

The meaning of the flags is documented in `tuner/export/megatron_core.py` and `megatron_experts.py`, which write them.
Megatron-LM's defaults count for missing flags. Coefficients of losses and the capacity of experts belong to the
training as much as to the model: one that the model does not state is taken from the command.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.megatron_stack import CORE_OPTIMIZERS
from tuner.core.model import Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.text import listed, shown
from tuner.launch.trainers.kind import Flags, number, real
from tuner.launch.trainers.megatron_arguments import OTHER_LAYERS, check_parts, describes_model, with_unexpressed

_LLAMA3: Final = RotaryScaling(kind="llama3", factor=8.0, original_seq=8192)
"""The scaling of `--use-rope-scaling`, whatever `--rope-scaling-factor` (megatron/core/models/common/embeddings/
rotary_pos_embedding.py; megatron/training/argument_utils.py passes no factor)."""
_BALANCED: Final = ("aux_loss", "seq_aux_loss")
"""Values of `--moe-router-load-balancing-type` with a loss that a field of the experts expresses."""
_VARIANTS: Final = ("--experimental-attention-variant", "--linear-attention-type")
"""The flag of another attention, and its name before megatron-core 0.16."""
_DELTA_NETS: Final = ("gated_delta_net", "gdn")
"""Values of `--experimental-attention-variant` for Gated DeltaNet, the second in recent releases."""
_LONGEST_PATTERN: Final = 10_000

Value = float | str | bool


def scaled_positions(flags: Flags) -> dict[str, Any]:
    """Return the fields of scaled and skipped rotary embeddings, for a model that the arguments alone describe."""
    found: dict[str, Any] = {}
    if flags.get("--position-embedding-type") == "rope":
        linear = "--rotary-seq-len-interpolation-factor"
        if linear in flags and "--use-rope-scaling" not in flags:
            found["rotary_scaling"] = RotaryScaling(kind="linear", factor=real(flags, linear))
        elif "--use-rope-scaling" in flags and linear not in flags:
            found["rotary_scaling"] = _LLAMA3
        if flags.get("--no-rope-freq", "").isdecimal():
            found["rotary_skip"] = number(flags, "--no-rope-freq")
    return found


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
    values = (*_experts(flags, model), *_latent(flags, model), *_delta_net(flags, model), *_positions(flags, model))
    values = (*values, *_other(model))
    for flag, own, default in values:
        _compare(flags, model, flag, own, default)
    _check_layers(flags, model)
    if experts := model.experts:
        for flag, own, found in _training(flags, experts):
            if own and flag in flags and own != found:
                raise _contradiction(flags, flag, own)


def with_training(flags: Flags, model: Model) -> Model:
    """Return the model with the settings of training of the arguments, and the flags that no field of it expresses."""
    if not describes_model(flags):
        return model
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


def _training(flags: Flags, experts: Experts) -> Iterator[tuple[str, Value, Value]]:
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
    if model.rotary_scaling:
        yield "--rope-type", "yarn", "yarn"
    if model.rotary_scaling or flags.get("--rope-type") != "rope":  # yarn by 1 scales nothing
        yield "--rotary-scaling-factor", model.rotary_scaling.factor if model.rotary_scaling else 1.0, 1.0


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


def _positions(flags: Flags, model: Model) -> Iterator[tuple[str, Value, Value]]:
    scaling = model.rotary_scaling
    if model.latent or model.positions != "rotary":
        return
    is_yarn = scaling is not None and scaling.kind == "yarn"
    if is_yarn or flags.get("--position-embedding-type") == "yarn":
        yield "--position-embedding-type", "yarn" if is_yarn else "rope", "learned_absolute"
    if scaling is not None and is_yarn:
        yield "--rotary-scaling-factor", scaling.factor, 1.0
        yield "--yarn-original-max-position-embeddings", scaling.original_seq, scaling.original_seq
        yield "--yarn-beta-fast", scaling.beta_fast, scaling.beta_fast
        yield "--yarn-beta-slow", scaling.beta_slow, scaling.beta_slow
    if scaling is not None and scaling.kind == "linear":
        yield "--rotary-seq-len-interpolation-factor", scaling.factor, 1.0


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
    elif flag in flags and own != (flags[flag] if isinstance(own, str) else real(flags, flag)):
        raise _contradiction(flags, flag, own)


def _contradiction(flags: Flags, flag: str, own: Value) -> InputError:
    """Return the error for a flag with another value than the model."""
    return InputError(
        f"{flag} {flags[flag]} in --command contradicts the model, whose value is {_spelt(own)}; "
        "correct --model or the command."
    )


def _spelt(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _check_layers(flags: Flags, model: Model) -> None:
    """Raise if flags place experts, windows or layers without rotary embeddings elsewhere than the model."""

    def compare(flag: str, parts: str, has: Callable[[int], bool], of_number: Callable[[int, int], bool]) -> None:
        if flag in flags and [*map(has, range(model.layers))] != _layers(flags, flag, model.layers, of_number):
            raise InputError(
                f"{flag} {flags[flag]} in --command contradicts the model, which has {parts} in other layers; "
                "correct --model or the command."
            )

    if model.experts:
        compare("--moe-layer-freq", "experts", model.is_moe_layer, lambda layer, every: layer % every == 0)
    check_parts(flags, model, {"--linear-attention-freq": model.delta_net is not None})
    if delta := model.delta_net:
        compare(
            "--linear-attention-freq",
            "Gated DeltaNet",
            lambda layer: not delta.has_attention(layer),
            lambda layer, n: (layer + 1) % n != 0,
        )
    if skip := model.rotary_skip:
        turned = "rotary embeddings"
        compare("--no-rope-freq", turned, lambda layer: not (layer + 1) % skip, lambda layer, n: not (layer + 1) % n)
    if not model.window or "--window-size" not in flags:
        return
    sizes = re.findall(r"-?[0-9]+", flags["--window-size"])
    if sizes[:1] != [str(model.sliding_window - 1)]:
        raise _contradiction(flags, "--window-size", f"{model.sliding_window - 1},0")
    if "--window-attn-skip-freq" not in flags and not all(map(model.is_windowed_layer, range(model.layers))):
        raise InputError(
            "--command lacks --window-attn-skip-freq, and without it all layers have the window, unlike the model; "
            "correct --model or the command."
        )
    compare("--window-attn-skip-freq", "windows", model.is_windowed_layer, lambda layer, n: (layer + 1) % n != 0)


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
