"""Mixtures of experts shared by tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tuner.core.experts import Experts, Latent
from tuner.core.model import Model
from tuner.tables.described_model import LLAMA_LIKE

TINY_EXPERTS: Final = Model(
    name="tiny-experts",
    layers=4,
    hidden=512,
    heads=8,
    vocab=512,
    seq=256,
    experts=Experts(count=16, top_k=2, ffn=256, shared_ffn=512),
    **LLAMA_LIKE,
)

QWEN3_30B: Final = Model(
    name="qwen3-30b-a3b",
    layers=48,
    hidden=2048,
    heads=32,
    kv_heads=4,
    head_size=128,
    ffn=6144,
    vocab=151936,
    seq=4096,
    qk_norm=True,
    experts=Experts(count=128, top_k=8, ffn=768),
    **LLAMA_LIKE,
)

DEEPSEEK: Final = Model(
    name="deepseek-like",
    layers=16,
    hidden=2048,
    heads=16,
    ffn=8192,
    vocab=102400,
    seq=4096,
    experts=Experts(count=64, top_k=6, ffn=1408, shared_ffn=2816, dense_layers=1, router="sigmoid"),
    latent=Latent(query_rank=512, kv_rank=512, nope_size=128, rope_size=64, value_size=128),
    mtp_layers=1,
    **LLAMA_LIKE,
)

WITHOUT_EXPERTS: Final = replace(QWEN3_30B, name="dense", experts=None)
