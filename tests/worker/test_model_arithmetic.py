"""The worker's model in this process: compared with plain attention, and sharded over threads with the whole model."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.test_worker_arithmetic import place, torch
from tests.worker.thread_ranks import Group, threads
from tests.workers import WORKLOAD, tiny, topology
from tuner.core.domain import Topology, Workload
from tuner.core.model import Model
from tuner.worker import block, linear, model
from tuner.worker.data import batch_of

__all__ = ["threads"]  # fixture

SMALL: dict[str, Any] = {"layers": 2, "hidden": 16, "heads": 4, "ffn": 24, "vocab": 27, "seq": 8, "vocab_multiple": 8}
LLAMA: dict[str, Any] = SMALL | {
    "kv_heads": 2,
    "positions": "rotary",
    "norm": "rmsnorm",
    "gated_mlp": True,
    "attention_bias": False,
}
MODELS: dict[str, Model] = {
    "gpt": tiny(**SMALL, max_positions=11),
    "llama": tiny(**LLAMA, tied_embeddings=False, qkv_bias=False, mlp_bias=False),
    "bloom": tiny(**SMALL, positions="alibi", embedding_norm=True, tied_embeddings=False, head_bias=True),
    "qwen": tiny(**LLAMA | {"kv_heads": 1}, qk_norm=True, final_norm=False, head_size=6),
}


def workload(name: str, **changes: Any) -> Workload:
    """Return a small workload of this model."""
    return replace(WORKLOAD, model=MODELS[name], global_batch=4, **changes)


def built(job: Workload, chosen: Topology, mesh: Any) -> Any:
    """Return this rank's part of the model."""
    return model.build(job, chosen, mesh, seed=3, ds_config={}, groups=None)


def disturb(whole: Any) -> dict[str, Any]:
    """Give every parameter, including biases and norms, values that matter, and return them by name."""
    chance = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=chance) * 0.3)
    return dict(whole.named_parameters())


class Plain:
    """The same transformer in plain operations on (batch, sequence, hidden), head by head."""

    def __init__(self, job: Workload, parts: dict[str, Any]) -> None:
        self.model, self.parts = job.model, parts

    def product(self, name: str, vectors: Any) -> Any:
        """Multiply by the transposed matrix and add its bias, if it has one."""
        return vectors @ self.parts[f"{name}.weight"].t() + self.parts.get(f"{name}.bias", 0.0)

    def norm(self, name: str, vectors: Any) -> Any:
        """Divide by the root mean square, after subtracting the mean if there is a bias."""
        bias = self.parts.get(f"{name}.bias")
        if bias is not None:
            vectors = vectors - vectors.mean(-1, keepdim=True)
        scaled = vectors / (vectors.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.parts[f"{name}.weight"]
        return scaled if bias is None else scaled + bias

    def turned(self, vectors: Any) -> Any:
        """Rotate pairs (i, i + half) of a head by position x 10000^(-2i / size), as complex numbers."""
        length, size = vectors.shape[-2:]
        pairs = torch.complex(vectors[..., : size // 2], vectors[..., size // 2 :])
        angles = [[at * 10000 ** (-2 * pair / size) for pair in range(size // 2)] for at in range(length)]
        pairs = pairs * torch.polar(torch.ones(length, size // 2), torch.tensor(angles))
        return torch.cat((pairs.real, pairs.imag), -1)

    def attention(self, name: str, vectors: Any) -> Any:
        """Causal attention; query head h reads key/value head h // (heads / kv_heads)."""
        found, shape = self.product(f"{name}.qkv", vectors), self.model
        size = shape.query_width // shape.heads
        length = vectors.shape[1]
        contexts = []
        for head in range(shape.heads):
            shared = head // (shape.heads // shape.kv_heads)
            starts = [
                head * size,
                shape.query_width + shared * size,
                shape.query_width + shape.kv_width + shared * size,
            ]
            query, key, value = (found[..., start : start + size] for start in starts)
            if shape.qk_norm:
                query, key = self.norm(f"{name}.norms.0", query), self.norm(f"{name}.norms.1", key)
            if shape.positions == "rotary":
                query, key = self.turned(query), self.turned(key)
            scores = query @ key.transpose(1, 2) / math.sqrt(size)
            if shape.positions == "alibi":
                distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
                scores = scores + 2 ** (-8 * (head + 1) / shape.heads) * distance
            scores = scores + torch.full((length, length), -math.inf).triu(1)
            contexts.append(scores.softmax(-1) @ value)
        return self.product(f"{name}.out", torch.cat(contexts, -1))

    def mlp(self, name: str, vectors: Any) -> Any:
        """Apply GELU with tanh, or SiLU(first half) x second half."""
        inner = self.product(f"{name}.up", vectors)
        if self.model.gated_mlp:
            gate, value = inner[..., : self.model.ffn], inner[..., self.model.ffn :]
            inner = gate / (1 + (-gate).exp()) * value
        else:
            inner = 0.5 * inner * (1 + (math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)).tanh())
        return self.product(f"{name}.down", inner)

    def loss(self, tokens: Any, labels: Any) -> Any:
        """Return the mean of -log softmax over the vocabulary without padding."""
        stream = self.parts["words.weight"][tokens]
        if self.model.positions == "learned":
            stream = stream + self.parts["positions.weight"][: self.model.seq]
        if self.model.embedding_norm:
            stream = self.norm("positions.norm", stream)
        for layer in range(self.model.layers):
            stream = stream + self.attention(
                f"layers.{layer}.attention", self.norm(f"layers.{layer}.before_attention", stream)
            )
            stream = stream + self.mlp(f"layers.{layer}.mlp", self.norm(f"layers.{layer}.before_mlp", stream))
        if self.model.final_norm:
            stream = self.norm("final_norm.norm", stream)
        logits = self.product("words" if self.model.tied_embeddings else "head", stream)[..., : self.model.vocab]
        right = logits.gather(-1, labels[..., None])[..., 0]
        return (logits.exp().sum(-1).log() - right).mean()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fused", [True, False])
def test_loss_and_gradients_equal_those_of_a_plain_transformer(name: str, fused: bool) -> None:
    job = workload(name, fused_norms=fused)
    whole = built(job, topology(), place())
    parts = disturb(whole)
    batch = batch_of(0, 2, job, 1)
    loss = whole(*batch)
    gradients = torch.autograd.grad(loss, list(parts.values()), retain_graph=True)
    plain = Plain(job, parts).loss(*batch)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
    assert loss.item() > 2
    for found, expected in zip(gradients, torch.autograd.grad(plain, list(parts.values())), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt", "llama", "qwen"])
def test_flash_attention_has_the_loss_of_eager_attention(name: str) -> None:
    losses = []
    for attention in ("eager", "flash2"):
        job = workload(name, attention=attention)
        whole = built(job, topology(), place())
        disturb(whole)
        losses.append(whole(*batch_of(0, 2, job, 1)).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_only_a_cpu_falls_back_from_the_flash_kernel() -> None:
    def on(device: str) -> Any:
        return block._flash(SimpleNamespace(device=SimpleNamespace(type=device)))  # type: ignore[arg-type]

    assert isinstance(on("cpu"), nullcontext)
    assert not isinstance(on("cuda"), nullcontext)


@pytest.mark.parametrize(("recompute", "layers", "cores"), [("none", 2, 2), ("selective", 2, 4), ("full", 4, 4)])
def test_recomputation_reruns_layers_or_their_attention(
    recompute: Any, layers: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backward pass of two layers recomputes everything, only the scores, or nothing."""
    calls: list[str] = []
    forward, core = block.Block.forward, block.eager_attention
    monkeypatch.setattr(block.Block, "forward", lambda *given: calls.append("layer") or forward(*given))  # type: ignore[func-returns-value]
    monkeypatch.setattr(block, "eager_attention", lambda *given, **named: calls.append("core") or core(*given, **named))  # type: ignore[func-returns-value]
    job = workload("gpt")
    built(job, topology(recompute=recompute), place())(*batch_of(0, 2, job, 1)).backward()
    assert (calls.count("layer"), calls.count("core")) == (layers, cores)


def test_residual_projections_are_scaled_by_the_root_of_twice_the_layers() -> None:
    """0.02 / sqrt(2 x 8) is 0.005; uniform values reach deviation x sqrt(3)."""
    recipe = linear.Recipe(workload=replace(WORKLOAD, model=tiny(layers=8)), recompute_attention=False, microbatches=1)
    assert recipe.deviation == pytest.approx(0.005)
    assert recipe.head_size == 16
    whole = built(replace(WORKLOAD, model=tiny(layers=8)), topology(), place())
    for name, deviation in [("attention.out", 0.005), ("mlp.down", 0.005), ("attention.qkv", 0.02), ("mlp.up", 0.02)]:
        weight = whole.get_parameter(f"layers.0.{name}.weight")
        assert weight.std().item() == pytest.approx(deviation, rel=0.03)
        assert weight.max().item() == pytest.approx(deviation * math.sqrt(3), rel=0.01)


STEPS, RATE = 3, 0.2


def trained(whole: Any, job: Workload) -> tuple[list[float], list[float]]:
    """Train a few steps; return the loss of each, and the squared gradients that count on this rank."""
    losses, norms = [], []
    for step in range(STEPS):
        whole.zero_grad()
        loss = whole(*batch_of(2 * step, 2, job, 1))
        loss.backward()
        counted = [part for part in whole.parameters() if part.requires_grad and part.tensor_model_parallel]
        losses.append(loss.item())
        norms.append(sum(float(part.grad.square().sum()) for part in counted))
        with torch.no_grad():
            for part in whole.parameters():
                if part.grad is not None:
                    part.sub_(RATE * part.grad)
    return losses, norms


@pytest.mark.parametrize(
    ("name", "tp", "sequence_parallel", "recompute", "parallel_loss"),
    [
        ("gpt", 2, False, "none", True),
        ("gpt", 4, True, "full", False),
        ("llama", 2, True, "selective", True),
        ("llama", 4, False, "none", False),
        ("bloom", 2, False, "full", False),
        ("bloom", 4, True, "none", True),
        ("qwen", 2, True, "none", True),
        ("qwen", 4, False, "selective", True),
        ("qwen", 4, True, "none", False),
    ],
)
def test_a_sharded_model_trains_as_the_whole_one(
    name: str,
    tp: int,
    sequence_parallel: bool,
    recompute: Any,
    parallel_loss: bool,
    threads: Callable[..., list[Any]],
) -> None:
    """Each rank has the losses of the whole model, and the gradients counted on all ranks add up to its norm."""
    job = workload(name, parallel_loss=parallel_loss)
    job = replace(job, model=replace(job.model, init_std=0.5))
    # the same vocabulary, and thus the same padding, for both
    job = replace(job, model=replace(job.model, vocab_multiple=32 // tp))
    whole = replace(job, model=replace(job.model, vocab_multiple=32))
    losses, norms = trained(built(whole, topology(), place()), whole)
    copies = max(1, tp // job.model.kv_heads)
    group = Group(list(range(tp)))
    kv_groups = [Group(list(range(first, first + copies))) for first in range(0, tp, copies)] if copies > 1 else []

    def train(rank: int) -> tuple[list[float], list[float]]:
        mesh = place(
            tp=tp,
            tp_rank=rank,
            tp_group=group,
            kv_copies=copies,
            kv_group=kv_groups[rank // copies] if kv_groups else None,
            sequence_parallel=sequence_parallel,
        )
        return trained(built(job, topology(tp=tp, recompute=recompute), mesh), job)

    answers = threads(train, tp, [group, *kv_groups])
    for found, _ in answers:
        assert found == pytest.approx(losses, rel=1e-4)
    assert [sum(norms) for norms in zip(*(norms for _, norms in answers), strict=True)] == pytest.approx(
        norms, rel=1e-3
    )
    assert losses[0] != pytest.approx(losses[1], rel=0.01)


def test_frozen_tensors_get_no_gradient(threads: Callable[..., list[Any]]) -> None:
    """A column product computes only the requested gradients: of the input (or its shard), the weight or the bias."""
    from tuner.worker.parallel import column_product

    for sequence in (False, True):
        for wanted in [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]:
            group = Group([0, 1])

            def work(rank: int, sequence: bool = sequence, wanted: Any = wanted, group: Group = group) -> Any:
                chance = torch.Generator().manual_seed(rank)
                shapes = [(2 if sequence else 4, 3, 5), (6, 5), (6,)]
                parts = [
                    torch.randn(shape, generator=chance, requires_grad=needs)
                    for shape, needs in zip(shapes, wanted, strict=True)
                ]
                if not sequence:  # the same input on every rank
                    parts[0] = torch.ones(shapes[0], requires_grad=wanted[0])
                product: Any = column_product(parts[0], parts[1], parts[2], group, sequence)
                product.square().sum().backward()
                return parts, product.detach()

            (first, one), (second, two) = threads(work, 2, [group])
            inputs = torch.cat((first[0], second[0])).detach() if sequence else first[0].detach()
            gradient = torch.zeros_like(inputs)
            for (_, weight, bias), product in ((first, one), (second, two)):
                expected = inputs @ weight.detach().t() + bias.detach()
                torch.testing.assert_close(product, expected)
                gradient += 2 * expected @ weight.detach()
                if wanted[1]:
                    torch.testing.assert_close(weight.grad, 2 * torch.einsum("sbo,sbi->oi", expected, inputs))
                if wanted[2]:
                    torch.testing.assert_close(bias.grad, 2 * expected.sum((0, 1)))
            shares = gradient.chunk(2) if sequence else (gradient, gradient)
            for parts, share in ((first, shares[0]), (second, shares[1])):
                assert [part.grad is not None for part in parts] == list(wanted)
                if wanted[0]:
                    torch.testing.assert_close(parts[0].grad, share)
