"""The worker's experts: in this process against a plain implementation, and as jobs against a single rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.worker.test_model_arithmetic import Plain, built, disturb
from tests.worker.test_worker_arithmetic import maker, place, torch
from tests.worker.thread_ranks import Group, threads
from tests.workers import WORKLOAD, Ranks, mixture, tiny, topology
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import Workload
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.costmodel.flops import hardware_flops as modelled_flops
from tuner.worker.data import batch_of
from tuner.worker.linear import Recipe
from tuner.worker.mlp import RoutedExperts, Router
from tuner.worker.report import hardware_flops

__all__ = ["threads"]  # fixture

SMALL: dict[str, Any] = {
    "layers": 2,
    "hidden": 16,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 24,
    "vocab": 24,
    "seq": 8,
    "vocab_multiple": 8,
    "gated_mlp": True,
    "norm": "rmsnorm",
    "positions": "rotary",
    "tied_embeddings": False,
    **dict.fromkeys(("mlp_bias", "qkv_bias", "attention_bias"), False),
}
MODELS: dict[str, Model] = {
    "mixtral": tiny(**SMALL, experts=Experts(count=4, top_k=2, ffn=10)),
    "qwen2": tiny(
        **SMALL, experts=Experts(count=6, top_k=3, ffn=6, shared_ffn=12, shared_gate=True, normalized=False, scale=1.5)
    ),
    "deepseek": tiny(
        **SMALL, experts=Experts(count=5, top_k=2, ffn=6, shared_ffn=6, dense_layers=1, aux_loss=2.0, z_loss=0.3)
    ),
    "ernie": tiny(
        **SMALL, experts=Experts(count=5, top_k=1, ffn=6, period=2, aux_loss=2.0, aux_loss_per_sequence=True)
    ),
    "plain": tiny(**{**SMALL, "gated_mlp": False}, experts=Experts(count=4, top_k=2, ffn=10)),
}


class PlainMixture(Plain):
    """The same mixture, computed token by token; `balance` accumulates the routers' losses."""

    def __init__(self, job: Workload, parts: dict[str, Any]) -> None:
        super().__init__(job, parts)
        self.routing, self.balance = job.routing, torch.zeros(())

    def mlp(self, name: str, vectors: Any) -> Any:
        sizes = self.model.experts
        assert sizes
        if not self.model.is_moe_layer(int(name.split(".")[1])):
            return super().mlp(name, vectors)
        logits = vectors @ self.parts[f"{name}.router.weight"].t()
        scores = logits.softmax(-1)
        out = torch.zeros_like(vectors)
        picks = torch.zeros_like(scores)
        for sample in range(vectors.shape[0]):
            for position in range(vectors.shape[1]):
                token, score = vectors[sample, position], scores[sample, position]
                chosen = [(position * sizes.top_k + pick) % sizes.count for pick in range(sizes.top_k)]
                if self.routing == "natural":
                    chosen = score.argsort(descending=True)[: sizes.top_k].tolist()
                total = score[chosen].sum() if sizes.normalized else 1.0
                results = [self.expert(name, expert, token) * score[expert] / total for expert in chosen]
                out[sample, position] = torch.stack(results).sum(0) * sizes.scale
                picks[sample, position, chosen] = 1.0
        over = (1,) if sizes.aux_loss_per_sequence else (0, 1)
        shares = picks.mean(over) / sizes.top_k * scores.mean(over) * sizes.count
        self.balance = self.balance + sizes.aux_loss * shares.sum(-1).mean()
        self.balance = self.balance + sizes.z_loss * logits.exp().sum(-1).log().square().mean()
        if sizes.shared_ffn:
            up, down = (self.parts[f"{name}.shared.{part}.weight"] for part in ("up", "down"))
            gate = (vectors @ self.parts[f"{name}.gate"].t()).sigmoid() if sizes.shared_gate else 1.0
            out = out + self.product_of(up, down, vectors) * gate
        return out

    def expert(self, name: str, number: int, token: Any) -> Any:
        """Return the output of one expert, whose matrices are slices of the stacked ones."""
        stacked = [self.parts[f"{name}.experts.{part}"] for part in ("up", "down")]
        assert self.model.experts
        up, down = (matrix.chunk(self.model.experts.count)[number] for matrix in stacked)
        return self.product_of(up, down, token)

    def product_of(self, up: Any, down: Any, vectors: Any) -> Any:
        """Return SiLU(first half) x second half, or GELU, between two matrix products."""
        inner = vectors @ up.t()
        if not self.model.gated_mlp:
            return torch.nn.functional.gelu(inner, approximate="tanh") @ down.t()
        gate, value = inner.chunk(2, -1)
        return (gate * torch.sigmoid(gate) * value) @ down.t()


@pytest.mark.parametrize("routing", ["balanced", "natural"])
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_equal_those_of_a_plain_mixture(name: str, routing: Any) -> None:
    """The loss excludes the routers' losses, but the gradients include them, averaged over two microbatches."""
    job = replace(WORKLOAD, model=MODELS[name], global_batch=4, routing=routing)
    whole = built(job, topology(micro_batch=2), place())
    parts = disturb(whole)
    batch = batch_of(0, 2, job, 1)
    loss = whole(*batch)
    reference = PlainMixture(job, parts)
    plain = reference.loss(*batch)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
    assert (reference.balance.item() > 0.1) == bool(MODELS[name].experts.aux_loss)  # type: ignore[union-attr]
    found = torch.autograd.grad(loss, list(parts.values()))
    expected = torch.autograd.grad(plain + reference.balance / 2, list(parts.values()))
    for part, gradient, wanted in zip(parts, found, expected, strict=True):
        torch.testing.assert_close(
            gradient, wanted, rtol=1e-3, atol=1e-5, msg=lambda text, part=part: f"{part}: {text}"
        )


@pytest.mark.parametrize("name", MODELS)
def test_a_rank_has_its_share_of_the_experts_and_all_other_parameters(name: str) -> None:
    model = MODELS[name]
    assert model.experts
    job = replace(WORKLOAD, model=model)
    whole = sum(part.numel() for part in built(job, topology(), place()).parameters())
    assert whole == model.parameters
    ep = model.experts.count // 2 if model.experts.count % 2 == 0 else model.experts.count
    share = built(job, topology(), place(ep=ep, ep_rank=1, expert_group="e"))
    elsewhere = model.moe_layers * model.experts.count * model.expert_parameters * (ep - 1) // ep
    assert sum(part.numel() for part in share.parameters()) == model.parameters - elsewhere
    for part_name, part in share.named_parameters():
        assert (getattr(part, "allreduce", True) is False) == (".experts." in part_name), part_name


@pytest.mark.parametrize(("count", "top_k", "seq"), [(8, 2, 32), (6, 4, 32), (7, 3, 32), (16, 8, 3)])
def test_forced_routing_balances_the_experts(count: int, top_k: int, seq: int) -> None:
    """Loads differ by at most one in every sequence, and a token is never routed to an expert twice."""
    model = tiny(seq=seq, experts=Experts(count=count, top_k=top_k, ffn=8))
    router = Router(
        Recipe(workload=replace(WORKLOAD, model=model), recompute_attention=False, microbatches=1), maker("router")
    )
    chosen, weights = router(torch.randn(seq, 2, 64))
    assert chosen.shape == weights.shape == (seq, 2, top_k)
    for sample in range(2):
        loads = chosen[:, sample].flatten().bincount(minlength=count)
        assert loads.max() - loads.min() <= 1
    assert all(len(set(picks.tolist())) == top_k for picks in chosen.flatten(0, 1))
    torch.testing.assert_close(weights.sum(-1), torch.ones(seq, 2))


@pytest.mark.parametrize("ep", [2, 3])
def test_experts_of_other_ranks_have_the_outputs_and_gradients_of_local_ones(
    ep: int, threads: Callable[..., list[Any]]
) -> None:
    """Loads are uneven, some experts get no token, and a rank's gradients are sums over all tokens."""
    recipe = Recipe(
        workload=replace(WORKLOAD, model=mixture(count=6, top_k=2)), recompute_attention=False, microbatches=1
    )
    group, chance = Group(list(range(ep))), torch.Generator().manual_seed(1)
    given = [torch.randn(5, 64, generator=chance) for _ in range(ep)]
    chosen = [torch.tensor([[0, 5], [0, 3], [2, 0], [5, 0], [0, 2]]), torch.tensor([[2, 3]] * 5)]
    chosen = [chosen[rank % 2] for rank in range(ep)]
    weights = [torch.rand(5, 2, generator=chance) for _ in range(ep)]

    def share(rank: int, mesh: Any) -> tuple[Any, Any, Any]:
        experts, tokens = RoutedExperts(recipe, maker("experts", **mesh)), given[rank].clone().requires_grad_()
        out = experts(tokens, chosen[rank], weights[rank])
        (out * out).sum().backward()
        return out.detach(), tokens.grad, [experts.up.grad, experts.down.grad]

    own = [share(rank, {}) for rank in range(ep)]
    spread = threads(
        lambda rank: share(rank, {"ep": ep, "ep_rank": rank, "ep_group": group, "expert_group": "e"}), ep, [group]
    )
    for rank in range(ep):
        for found, expected in zip(spread[rank][:2], own[rank][:2], strict=True):
            torch.testing.assert_close(found, expected)
        for matrix in range(2):
            total = sum(one[2][matrix] for one in own)
            torch.testing.assert_close(spread[rank][2][matrix], total.chunk(ep)[rank])


def test_flops_are_those_of_the_cost_model() -> None:
    chosen = topology(dp=2, ep=2, recompute="full")
    cluster = catalog.make_cluster(name="two", gpu=catalog.gpu("A100-80GB-SXM"), nodes=1, gpus_per_node=2)
    for model in MODELS.values():
        job = replace(WORKLOAD, model=model)
        expected = modelled_flops(Columns.of([chosen], job, cluster)).item()
        assert hardware_flops(job, 1, "full") == pytest.approx(expected, rel=1e-9)


# ------------------------------------------------------------------------------------------------------------- jobs

SGD = replace(WORKLOAD, model=mixture(), optimizer="sgd")
CLIP = 0.5
"""Some gradients are longer and some shorter than this, so that their norm over all experts matters."""
PRECISE = 1e-5
"""Relative tolerance in fp32; the largest measured difference is 2e-7."""
COARSE = 1e-3
"""Relative tolerance in bf16; measured: 6e-5."""


def check(workload: Workload, ranks: Ranks, base: dict[str, Any], within: float, **axes: Any) -> None:
    """Check that a job has the losses of one rank, and that its ranks have the parameters of the model."""
    reference = ranks.succeeded(workload, topology(**base), clip=CLIP)
    job = ranks.succeeded(workload, topology(**axes), clip=CLIP)
    assert len(reference.losses) == 10
    assert reference.losses[0] - min(reference.losses) > 0.1, "nothing was learnt that could differ"
    assert job.losses == pytest.approx(reference.losses, rel=within)
    model, ep = workload.model, axes.get("ep", 1)
    assert model.experts
    if axes.get("tp", 1) == axes.get("pp", 1) == 1:
        elsewhere = model.moe_layers * model.experts.count * model.expert_parameters * (ep - 1) // ep
        counts = {rank["trained"] for rank in job.result["parameters"]}
        assert counts == {model.parameters - elsewhere}


@pytest.mark.parametrize("zero", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_experts_on_two_ranks_have_the_losses_of_one(zero: int, ranks: Ranks) -> None:
    """The worker clips gradients without ZeRO, and DeepSpeed with ZeRO."""
    check(SGD, ranks, {}, PRECISE, dp=2, ep=2, zero=zero)


@pytest.mark.slow
def test_the_losses_of_the_routers_affect_training(ranks: Ranks) -> None:
    without = replace(SGD, model=mixture(aux_loss=0.0, z_loss=0.0))
    assert ranks.succeeded(without, clip=CLIP).losses[1:] != ranks.succeeded(SGD, clip=CLIP).losses[1:]


PARITY: dict[str, dict[str, Any]] = {
    **{
        f"ep {ep} of dp {dp}, ZeRO {zero}": {"dp": dp, "ep": ep, "zero": zero, "micro_batch": 8 // dp}
        for dp, ep in ((2, 1), (2, 2), (4, 1), (4, 2), (4, 4))
        for zero in (0, 1, 2)
    },
    "ep 1, ZeRO 3": {"dp": 2, "zero": 3, "micro_batch": 2},
    "two microbatches": {"dp": 2, "ep": 2, "zero": 2, "micro_batch": 2},
    "layers computed again": {"dp": 2, "ep": 2, "zero": 1, "recompute": "full"},
    "offload": {"dp": 2, "ep": 2, "zero": 2, "offload": "optimizer"},
    "tensor parallel ranks with the same experts": {"tp": 2, "sequence_parallel": True},
    "tensor parallel ranks with other experts": {"tp": 2, "ep": 2, "sequence_parallel": True},
    "ep over tp and dp, ZeRO 2": {"tp": 2, "dp": 2, "ep": 4, "zero": 2, "sequence_parallel": True},
    "ep in two stages": {"pp": 2, "dp": 2, "ep": 2, "micro_batch": 2},
    "ep in two stages, ZeRO 1": {"pp": 2, "dp": 2, "ep": 2, "zero": 1, "micro_batch": 2},
    "ep in four stages, the first without experts": {"pp": 4, "dp": 2, "ep": 2, "micro_batch": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PARITY)
def test_a_mixture_trains_as_on_one_rank(case: str, ranks: Ranks) -> None:
    check(SGD, ranks, {}, PRECISE, **PARITY[case])


@pytest.mark.slow
def test_the_losses_of_the_routers_have_the_same_weight_in_every_batch(ranks: Ranks) -> None:
    """DeepSpeed divides by the microbatches of a batch; the first batch of a job trains as if it were the only one."""
    several = ranks.succeeded(
        replace(SGD, global_batch=16), topology(micro_batch=2), clip=CLIP, iterations=5, batches=(8, 16)
    )
    alone = ranks.succeeded(SGD, topology(micro_batch=2), clip=CLIP)
    assert several.losses[:5] == pytest.approx(alone.losses[:5], rel=PRECISE)


@pytest.mark.slow
def test_a_mixture_with_natural_routing_and_adam_trains_as_on_one_rank(ranks: Ranks) -> None:
    workload = replace(SGD, optimizer="adam", routing="natural")
    check(workload, ranks, {}, PRECISE, dp=4, micro_batch=2, ep=4, zero=2)


@pytest.mark.slow
def test_balance_over_a_microbatch_equals_that_of_one_rank(ranks: Ranks) -> None:
    """Loads are counted over a microbatch unless the model balances per sequence."""
    workload = replace(SGD, model=mixture(aux_loss_per_sequence=False))
    check(workload, ranks, {}, PRECISE, dp=2, ep=2)


@pytest.mark.slow
@pytest.mark.parametrize("zero", [0, 1, 2])
def test_experts_agree_to_the_precision_of_bf16(zero: int, ranks: Ranks) -> None:
    """The jobs use the same code path of DeepSpeed; ZeRO 0 in bf16 has another."""
    workload = replace(SGD, optimizer="adam", precision="bf16", attention="flash2")
    check(workload, ranks, {"zero": min(zero, 1)}, COARSE, dp=2, micro_batch=2, ep=2, zero=zero)
