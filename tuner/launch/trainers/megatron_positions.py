"""Scaled and skipped rotary embeddings in Megatron-LM's arguments, and the scalings that it has.

Read in NVIDIA/Megatron-LM: megatron/core/models/common/embeddings/rotary_pos_embedding.py and
yarn_rotary_pos_embedding.py, megatron/core/transformer/multi_latent_attention.py, and
megatron/training/argument_utils.py, which passes no factor of `--use-rope-scaling`, sets the defaults of yarn and
passes neither its original length nor its betas to latent attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.text import either, shown
from tuner.launch.trainers.kind import Flags, number, real

LLAMA3: Final = RotaryScaling(kind="llama3", factor=8.0, original_seq=8192)
"""The scaling of `--use-rope-scaling`, whatever `--rope-scaling-factor`."""
YARN: Final = RotaryScaling(kind="yarn", original_seq=4096)
"""Megatron-LM's defaults of yarn, and the constants of yarn in latent attention."""
YARN_FACTORS: Final = (1.0, 0.0)
"""Megatron's mscale and mscale_all_dim: rotated queries and keys grow by 0.1 log(factor) + 1, as in transformers."""

_SCALINGS: Final = ("linear", "llama3", "yarn")
"""The kinds of scaling outside latent attention."""

SCALES: Final = ("--mscale", "--mscale-all-dim")

Value = float | str | bool


def is_llama3(scaling: RotaryScaling, *, factor: float | None = None) -> bool:
    """Return whether a scaling has the constants of Llama 3.1, which are fixed in Megatron."""
    return (
        scaling.kind == "llama3"
        and (scaling.low_frequency, scaling.high_frequency) == (LLAMA3.low_frequency, LLAMA3.high_frequency)
        and scaling.original_seq == LLAMA3.original_seq
        and factor in (None, scaling.factor)
    )


def is_latent_yarn(scaling: RotaryScaling | None, *, any_constants: bool = False) -> bool:
    """Return whether Megatron's latent attention has a scaling, in Megatron-LM with fixed original length and betas."""
    if scaling is None:
        return True
    fixed = (YARN.original_seq, YARN.beta_fast, YARN.beta_slow)
    same = any_constants or (scaling.original_seq, scaling.beta_fast, scaling.beta_slow) == fixed
    return scaling.kind == "yarn" and scaling.truncate and scaling.original_seq > 0 and same


def latent_scales(model: Model) -> tuple[float, float]:
    """Return yarn's mscale and mscale_all_dim for given factors of attention scores and rotated keys."""
    latent, scaling = model.latent, model.rotary_scaling
    assert latent is not None  # noqa: S101 - callers ask
    if scaling is None or scaling.factor <= 1:
        return YARN_FACTORS
    step = 0.1 * math.log(scaling.factor)
    growth = math.sqrt((model.attention_scale or latent.key_size**-0.5) * latent.key_size**0.5)
    factor = scaling.attention_factor or (step + 1)
    return round((factor * growth - 1) / step, 9), round((growth - 1) / step, 9)


def scaled_positions(flags: Flags) -> dict[str, Any]:
    """Return the fields of scaled and skipped rotary embeddings, for a model that the arguments alone describe."""
    found: dict[str, Any] = {}
    if flags.get("--position-embedding-type") == "rope":
        linear = "--rotary-seq-len-interpolation-factor"
        if linear in flags and "--use-rope-scaling" not in flags:
            found["rotary_scaling"] = RotaryScaling(kind="linear", factor=real(flags, linear))
        elif "--use-rope-scaling" in flags and linear not in flags:
            found["rotary_scaling"] = LLAMA3
        if flags.get("--no-rope-freq", "").isdecimal():
            found["rotary_skip"] = number(flags, "--no-rope-freq")
    return found


def check_scaling(model: Model) -> None:
    """Raise if no flags of Megatron-LM scale rotary embeddings as the model does."""
    if contrast := _unlike(model):
        raise InputError(
            f"{contrast}, unlike the model {shown(model.name)}; correct --model, or write a template with fields in "
            "--command, without --trainer."
        )


def _unlike(model: Model) -> str:
    """Return how Megatron-LM scales rotary embeddings if the model is scaled by other constants; empty if it is not."""
    scaling = model.rotary_scaling
    if scaling is None or model.positions != "rotary":
        return ""
    if model.latent and not is_latent_yarn(scaling):
        return (
            f"Megatron-LM's latent attention always has yarn from {YARN.original_seq} tokens with betas "
            f"{YARN.beta_fast:g} and {YARN.beta_slow:g}, rounded"
        )
    if not model.latent and scaling.kind not in _SCALINGS:
        return f"Megatron-LM's rotary scaling is {either(_SCALINGS)} and never {scaling.kind}"
    if scaling.kind == "llama3" and not is_llama3(scaling, factor=LLAMA3.factor):
        return (
            f"--use-rope-scaling of Megatron-LM always scales by {LLAMA3.factor:g} from {LLAMA3.original_seq} tokens "
            f"with frequency factors {LLAMA3.low_frequency:g} and {LLAMA3.high_frequency:g}"
        )
    if not model.latent and scaling.kind == "yarn" and (model.rotary_fraction != 1 or model.rotary_interleaved):
        return "yarn of Megatron-LM always rotates whole heads in halves"
    return ""


def latent_positions(flags: Flags, model: Model) -> Iterator[tuple[str, Value, Value]]:
    """Yield flags of latent attention's positions with the model's value and Megatron-LM's default."""
    scaling = model.rotary_scaling
    if scaling:
        yield "--rope-type", "yarn", "yarn"
    if scaling or flags.get("--rope-type") != "rope":  # yarn by 1 scales nothing
        yield "--rotary-scaling-factor", scaling.factor if scaling else 1.0, 1.0
    if scaling and scaling.factor > 1:
        yield from zip(SCALES, latent_scales(model), YARN_FACTORS, strict=True)


def positions(flags: Flags, model: Model) -> Iterator[tuple[str, Value, Value]]:
    """Yield flags of other rotary positions with the model's value and Megatron-LM's default; a bool is a switch."""
    scaling = model.rotary_scaling
    if model.latent or model.positions != "rotary":
        return
    is_yarn = scaling is not None and scaling.kind == "yarn"
    if is_yarn or flags.get("--position-embedding-type") == "yarn":
        yield "--position-embedding-type", "yarn" if is_yarn else "rope", "learned_absolute"
    if scaling is not None and is_yarn:
        yield "--rotary-scaling-factor", scaling.factor, 1.0
        if scaling.original_seq:
            yield "--yarn-original-max-position-embeddings", scaling.original_seq, YARN.original_seq
        yield "--yarn-beta-fast", scaling.beta_fast, YARN.beta_fast
        yield "--yarn-beta-slow", scaling.beta_slow, YARN.beta_slow
        yield "--no-yarn-correction-range-round-to-int", not scaling.truncate, False
    if scaling is not None and scaling.kind == "linear":
        yield "--rotary-seq-len-interpolation-factor", scaling.factor, 1.0


def check_growth(flags: Flags, model: Model) -> None:
    """Raise if yarn makes rotated queries and keys grow otherwise than in the model."""
    if not grows_alike(flags, model):
        named = " and ".join(f"{flag} {scale:g}" for flag, scale in _scales(flags).items())
        raise InputError(
            f"with {named}, Megatron-LM multiplies rotated queries and keys by {_growth_of(flags, model):g}, "
            f"but the model by {growth(model):g}; correct --model or --command."
        )


def growth(model: Model) -> float:
    """Return the factor of rotated queries and keys in yarn outside latent attention; 0 without yarn."""
    scaling = model.rotary_scaling
    if model.latent or model.positions != "rotary" or scaling is None or scaling.kind != "yarn" or scaling.factor <= 1:
        return 0.0
    return scaling.attention_factor or 0.1 * math.log(scaling.factor) + 1


def grows_alike(flags: Flags, model: Model) -> bool:
    """Return whether rotated queries and keys grow as in the model."""
    return not growth(model) or math.isclose(growth(model), _growth_of(flags, model), rel_tol=1e-6)


def _scales(flags: Flags) -> dict[str, float]:
    """Return mscale and mscale_all_dim by their flags."""
    usual = zip(SCALES, YARN_FACTORS, strict=True)
    return {flag: real(flags, flag) if flag in flags else value for flag, value in usual}


def _growth_of(flags: Flags, model: Model) -> float:
    """Return the factor of rotated queries and keys that the flags set."""
    assert model.rotary_scaling is not None  # noqa: S101 - callers ask
    step = 0.1 * math.log(model.rotary_scaling.factor)
    scale, scale_all = (step * value + 1 for value in _scales(flags).values())
    return scale / scale_all if scale_all else math.inf
