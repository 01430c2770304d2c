"""Positions of attention: rotary embeddings and linear biases."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tuner.core.model import Model
from tuner.core.rotary_scaling import RotaryScaling


def rotated(heads: Tensor, model: Model, *, local: bool = False) -> Tensor:
    """Apply rotary positions (Su et al. 2021, arXiv 2104.09864) to heads of (sequence, batch, heads, size).

    A `local` layer has a sliding window, and may have a base of its own, which no scaling stretches.
    """
    length, size = heads.shape[0], heads.shape[-1]
    width = int(size * model.rotary_fraction)
    rates = rotary_rates(model, width, local=local).to(heads.device)
    angles = torch.arange(length, device=heads.device, dtype=torch.float32)[:, None] * rates
    cosine, sine = (part.to(heads.dtype)[:, None, None, :] for part in (angles.cos(), angles.sin()))
    turned, rest = heads[..., :width], heads[..., width:]
    if model.rotary_interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
        pairs = torch.stack((first * cosine - second * sine, second * cosine + first * sine), -1)
        return torch.cat((pairs.flatten(-2), rest), -1)
    first, second = turned.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine, rest), -1)


def rotary_rates(model: Model, width: int, *, local: bool = False) -> Tensor:
    """Return the angle per position of each pair, in fp32: base^(-2i / width), with the model's scaling."""
    own = local and model.rotary_local_base
    base = model.rotary_local_base if own else model.rotary_base
    rates = base ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    return rates if own or model.rotary_scaling is None else _scaled(rates, model.rotary_scaling)


def _scaled(rates: Tensor, scaling: RotaryScaling) -> Tensor:
    """Return stretched rates: all, or as in Llama 3.1, only those with long wavelengths."""
    if scaling.kind == "linear":
        return rates / scaling.factor
    turns = scaling.original_seq * rates / (2 * math.pi)
    kept = ((turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency)).clamp(0, 1)
    return rates * (kept + (1 - kept) / scaling.factor)


def alibi_slopes(heads: int) -> Tensor:
    """Return the slope of each head's linear bias (Press et al. 2021, arXiv 2108.12409), as BLOOM has them.

    For n heads they are 2^(-8h / n) where n is a power of two; otherwise those of the next lower power, followed by
    every other one of the next higher power.
    """
    lower = 2 ** int(math.log2(heads))
    slopes = torch.pow(2.0, -8.0 * torch.arange(1, lower + 1) / lower)
    between = torch.pow(2.0, -8.0 * (2 * torch.arange(heads - lower) + 1) / (2 * lower))
    return torch.cat((slopes, between))
