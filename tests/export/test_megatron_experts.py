"""Exports of mixtures of experts, read with Megatron's recorded flags, are the requested models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.export.megatron_namespace import asked, assert_exact_or_refused, parsed, trained
from tests.export.test_export import bloom, exported
from tests.export.test_megatron_core import hugging_face_run, identified_runs
from tuner.core.assignment import Assignment
from tuner.core.domain import DISPATCHERS
from tuner.core.errors import InputError
from tuner.core.experts import Experts, Latent
from tuner.core.recompute import RECOMPUTE
from tuner.core.rotary_scaling import RotaryScaling
from tuner.export.bridge import MEGATRON_BRIDGE
from tuner.export.bundle import FORMATS, bundle
from tuner.export.flag_table import flag_table
from tuner.export.formats import ExportOptions, Format
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.export.megatron_experts import layer_pattern
from tuner.export.production import ProductionRun
from tuner.launch.slurm.site_profile import SiteProfile

EXPERTS = st.builds(
    Experts,
    count=st.just(16),
    top_k=st.sampled_from([1, 2, 4]),
    ffn=st.sampled_from([64, 96]),
    shared_ffn=st.sampled_from([0, 128]),
    shared_gate=st.booleans(),
    dense_layers=st.sampled_from([0, 0, 1]),
    period=st.sampled_from([1, 1, 2, 3]),
    router=st.sampled_from(["softmax", "sigmoid"]),
    router_bias=st.booleans(),
    router_bias_rate=st.sampled_from([0.001, 0.01]),
    router_group_scores=st.sampled_from([1, 2]),
    normalized=st.booleans(),
    scale=st.sampled_from([1.0, 2.5]),
    weights_before=st.sampled_from([False, False, True]),
    capacity_factor=st.sampled_from([0.0, 0.0, 1.25]),
    expert_bias=st.booleans(),
    router_linear_bias=st.booleans(),
    aux_loss=st.sampled_from([0.0, 0.001]),
    aux_loss_per_sequence=st.booleans(),
    z_loss=st.sampled_from([0.0, 0.001]),
)
LATENTS = st.builds(
    Latent,
    query_rank=st.sampled_from([0, 24]),
    kv_rank=st.just(16),
    nope_size=st.just(16),
    rope_size=st.sampled_from([8, 16]),
    value_size=st.just(16),
)


@st.composite
def expert_runs(draw: st.DrawFn) -> ProductionRun:
    """Draw runs of models with experts, some with latent attention."""
    run = draw(identified_runs())
    experts = draw(EXPERTS)
    if draw(st.booleans()):
        experts = replace(experts, router_groups=4, router_top_groups=draw(st.sampled_from([1, 2])))
    model = replace(run.workload.model, layers=6, mtp_layers=draw(st.sampled_from([0, 1])), experts=experts)
    model = replace(model, mtp_loss=draw(st.sampled_from([0.1, 0.3])))
    if draw(st.booleans()):
        plain: dict[str, Any] = {
            "positions": "rotary",
            "rotary_interleaved": True,
            "norm": "rmsnorm",
            "rotary_fraction": 1.0,
        }
        plain |= {"qkv_bias": False, "qk_norm": draw(st.sampled_from([False, False, True])), "rotary_skip": 0}
        latent, factor = draw(LATENTS), draw(st.sampled_from([0.0, 40.0]))
        fast = draw(st.sampled_from([32.0, 32.0, 1.0]))
        yarn = RotaryScaling(kind="yarn", factor=40.0, original_seq=4096, beta_fast=fast, attention_factor=1.0)
        growth = (0.1 * draw(st.sampled_from([0.707, 1.0])) * math.log(factor) + 1) if factor else 1.0
        plain |= {
            "latent": latent,
            "rotary_scaling": yarn if factor else None,
            "attention_scale": latent.key_size**-0.5 * growth**2 * draw(st.sampled_from([1.0, 1.0, 1.5])),
        }
        model = replace(model, **plain)
    else:
        model = replace(
            model,
            attention_sinks=draw(st.booleans()),
            glu_clamp=draw(st.sampled_from([0.0, 7.0])),
            glu_offset=draw(st.sampled_from([0.0, 1.0])),
        )
    ep, etp = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    topology = replace(run.topology, ep=ep, etp=etp, dispatcher=draw(st.sampled_from(DISPATCHERS)))
    topology = replace(topology, recompute=draw(st.sampled_from(RECOMPUTE)), moe_overlap=draw(st.booleans()))
    return replace(run, workload=replace(run.workload, model=model), topology=topology)


@given(run=expert_runs())
@settings(max_examples=300)
def test_an_export_of_experts_trains_the_requested_run_or_is_refused(run: ProductionRun) -> None:
    assert_exact_or_refused(run)


REFUSED = {
    **dict.fromkeys(("mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "qwen2-57b-a14b", "deepseek-v3"), ""),
    **dict.fromkeys(("gpt-oss-120b", "glm-4.5", "glm-4.5-air"), ""),
    "deepseek-v2-lite": "latent attention (queries without a latent vector, which Megatron normalizes twice)",
    "kimi-k2": "yarn rotary scaling by 32 from 4,096 positions with betas 1 and 1",
    "moonlight-16b-a3b": "1e-05 elsewhere; queries without a latent vector, which Megatron normalizes twice",
    "deepseek-v2": "160 experts with 6 per token (groups ranked by 1 score)",
    "llama-4-maverick": "attention_chunk_size=8192",
    "olmoe-1b-7b": "query and key norm over all heads together",
    "phi-3.5-moe": "SparseMixer",
    "granite-3.0-3b-a800m": "embedding multiplier 12",
    "ernie-4.5-21b-a3b": "64 experts with 6 per token (a balancing bias under softmax)",
    "minimax-m2": "query and key norm over all heads together",
}
"""Published models with the properties that Megatron does not support.

DeepSeek-V2 ranks groups by one score, Megatron by two.
"""


@pytest.mark.parametrize("name", REFUSED)
def test_a_published_mixture_is_exported_exactly_or_refused_by_a_property(name: str) -> None:
    run = hugging_face_run(name)
    refusals = MEGATRON_CORE.refusals(run, ExportOptions())
    assert bool(refusals) == bool(REFUSED[name])
    assert REFUSED[name] in "; ".join(refusals)
    if not refusals:
        assert trained(parsed(megatron_core_flags(run))) == asked(run)


SITE = ExportOptions(site=SiteProfile(image="registry/name:tag"))
BIASES = dict.fromkeys(("qkv_bias", "attention_bias", "mlp_bias"), True)
BIASED: dict[str, Any] = {"expert_bias": True, "router_linear_bias": True}


def with_experts(model: dict[str, Any], **experts: Any) -> ProductionRun:
    """Return Mixtral with changed fields."""
    run = hugging_face_run("mixtral-8x7b")
    mixture = run.workload.model.experts
    assert mixture
    changed = replace(run.workload.model, experts=replace(mixture, **experts), **model)
    return replace(run, workload=replace(run.workload, model=changed))


@pytest.mark.parametrize(
    ("run", "refused"),
    [
        (with_experts(BIASES, **BIASED, shared_ffn=64), "biases of shared experts"),
        (with_experts({"gated_mlp": False, "activation": "gelu_tanh", **BIASES}, **BIASED), "tanh-approximated GELU"),
        (with_experts({"glu_offset": 1.0}), "with offset 1"),
        (with_experts({"glu_clamp": 7.0}), ""),
        (with_experts(BIASES, **BIASED), ""),
        (
            with_experts({}, router_groups=4, router_top_groups=1, router_group_scores=2),
            "groups under a softmax over the chosen experts",
        ),
        (with_experts({}, router_groups=4, router_top_groups=2, router_group_scores=1), ""),
    ],
)
def test_experts_that_megatron_rejects_or_changes_are_refused(run: ProductionRun, refused: str) -> None:
    assert refused in "; ".join(MEGATRON_CORE.refusals(run, ExportOptions()))
    assert bool(MEGATRON_CORE.refusals(run, ExportOptions())) == bool(refused)
    assert_exact_or_refused(run)


def test_grouped_gemms_with_biases_have_no_fused_dropout() -> None:
    """megatron/core/transformer/moe/experts.py asserts this; gpt-oss has such experts."""
    assert ("--no-bias-dropout-fusion",) in megatron_core_flags(hugging_face_run("gpt-oss-20b"))
    assert ("--no-bias-dropout-fusion",) not in megatron_core_flags(hugging_face_run("mixtral-8x7b"))
    recipe = bundle(with_experts(BIASES, **BIASED), "megatron-bridge", SITE)["recipe.py"]
    assert "bias_dropout_fusion=False" in recipe
    assert "bias_dropout_fusion=True" not in recipe


@pytest.mark.parametrize("name", ["megatron-core", "megatron-bridge"])
def test_latent_attention_without_yarn_accepts_only_the_usual_scale(name: str) -> None:
    """The softmax scale of latent attention follows from yarn's factors; no flag sets it."""
    run = hugging_face_run("deepseek-v3")
    scale = run.workload.model.attention_scale
    model = replace(run.workload.model, rotary_scaling=None)
    plain = replace(run, workload=replace(run.workload, model=model))
    assert scale
    assert FORMATS[name].refused(plain, ExportOptions()) == ["attention_scale"]
    usual = replace(plain, workload=replace(run.workload, model=replace(model, attention_scale=0.0)))
    assert not FORMATS[name].refused(usual, ExportOptions())


DEEPSPEED = [name for name, made in FORMATS.items() if made.framework == "deepspeed"]


@pytest.mark.parametrize("name", DEEPSPEED)
def test_the_formats_of_the_worker_export_its_experts(name: str, tmp_path: Path) -> None:
    """The export uses the model's own router, whatever the study measured, and refuses other experts by name."""
    run = hugging_face_run("qwen3-30b-a3b")
    run = replace(run, topology=replace(run.topology, ep=8, zero=1))
    (tmp_path / "assignment.json").write_text(bundle(run, name, SITE)["assignment.json"])
    assignment = Assignment.read(tmp_path / "assignment.json")
    assert assignment.topology == run.topology
    assert assignment.workload.model == run.workload.model
    assert assignment.workload.routing == "natural"
    with pytest.raises(InputError, match="does not support ZeRO stage 3"):
        bundle(replace(run, topology=replace(run.topology, zero=3)), name, SITE)
    assert run.workload.model.experts
    sigmoid = replace(run.workload.model, experts=replace(run.workload.model.experts, router="sigmoid"))
    with pytest.raises(InputError, match="128 experts with 8 per token"):
        bundle(replace(run, workload=replace(run.workload, model=sigmoid)), name, SITE)


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"megatron-core", "megatron-bridge", *DEEPSPEED}))
def test_other_formats_refuse_experts_by_name(name: str) -> None:
    run = hugging_face_run("qwen3-30b-a3b")
    run = replace(run, topology=replace(run.topology, ep=8, zero=3 if name == "accelerate" else 1))
    with pytest.raises(
        InputError, match="expert parallelism 8" if name == "accelerate" else "128 experts with 8 per token"
    ):
        bundle(run, name)


@pytest.mark.parametrize("chosen", [MEGATRON_CORE, MEGATRON_BRIDGE])
@pytest.mark.parametrize(
    ("name", "part", "changes", "reason"),
    [
        ("glm-4.5-air", "experts", {"normalized": False}, "(sigmoid weights that are not normalized)"),
        ("glm-4.5-air", "experts", {"scale": 0.0}, "(experts scaled by 0)"),
        ("mixtral-8x7b", "experts", {"router_bias": True}, "(a balancing bias under softmax)"),
        ("deepseek-v3", "", {"rotary_interleaved": False}, "(non-interleaved rotary pairs)"),
        ("deepseek-v3", "", {"qkv_bias": True}, "(biases of queries, keys and values)"),
        ("deepseek-v3", "latent", {"norm_epsilon": 1e-5}, "norm epsilon 1e-05 for latent vectors and 1e-06 elsewhere)"),
    ],
)
def test_refused_experts_and_latent_attention_have_a_reason(
    chosen: Format, name: str, part: str, changes: dict[str, Any], reason: str
) -> None:
    run = hugging_face_run(name)
    model = run.workload.model
    model = replace(model, **({part: replace(getattr(model, part), **changes)} if part else changes))
    changed = replace(run, workload=replace(run.workload, model=model))
    assert reason in "; ".join(chosen.refusals(changed, ExportOptions()))


def test_bridge_refuses_what_megatron_lm_refuses_for_the_same_reason() -> None:
    core, bridge = MEGATRON_CORE.treatments(ExportOptions()), MEGATRON_BRIDGE.treatments(ExportOptions())
    same = [name for name in core if bridge[name].accepts is core[name].accepts]
    assert {"experts", "sliding_window"} <= set(same)
    assert [name for name in same if core[name].because not in ("", bridge[name].because)] == []
    moonlight = hugging_face_run("moonlight-16b-a3b")
    refused = core["latent"].reason(moonlight), bridge["latent"].reason(moonlight)
    assert refused[0] == f"{refused[1]}; queries without a latent vector, which Megatron normalizes twice"


def test_tensor_parallelism_with_experts_needs_sequence_parallelism() -> None:
    run = hugging_face_run("qwen3-30b-a3b")
    split = replace(run.topology, tp=2, dp=4)
    assert MEGATRON_CORE.refusals(replace(run, topology=split), ExportOptions()) == ["no sequence parallelism"]
    assert not MEGATRON_CORE.refusals(replace(run, topology=replace(split, sequence_parallel=True)), ExportOptions())


@pytest.mark.parametrize(
    ("layers", "dense", "period", "pattern"),
    [(61, 3, 1, "([0]*3+[1]*58)"), (6, 0, 2, "(([0]*1+[1])*3)"), (7, 1, 2, "([0]*1+([0]*1+[1])*3)")],
)
def test_layers_with_experts_are_a_list(layers: int, dense: int, period: int, pattern: str) -> None:
    run = hugging_face_run("mixtral-8x7b")
    experts = Experts(count=8, top_k=2, ffn=64, dense_layers=dense, period=period)
    assert layer_pattern(replace(run.workload.model, layers=layers, experts=experts)) == pattern


def test_the_launch_script_quotes_the_pattern_of_layers() -> None:
    script = bundle(hugging_face_run("deepseek-v3"), "megatron-core")["launch.sbatch"]
    assert "--moe-layer-freq '([0]*3+[1]*58)'" in script


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
def test_the_readme_states_the_expert_parallelism_and_the_packages_to_install(dispatcher: str) -> None:
    run = hugging_face_run("mixtral-8x7b")
    run = replace(run, topology=replace(run.topology, dp=8, nodes=8, ep=4, dispatcher=dispatcher))  # type: ignore[arg-type]
    readme = bundle(run, "megatron-core")["README.md"]
    assert f"Experts: ep 4 x etp 1, dispatcher {dispatcher}" in readme
    assert ("must be installed" in readme) == (dispatcher == "deepep")


def test_a_list_flag_with_its_default_value_is_no_difference() -> None:
    table = flag_table("megatron-core")
    given = [("--moe-router-load-balancing-type", "aux_loss"), ("--moe-router-topk", "8")]
    assert [one.flag for one in table.differences(given)] == ["--moe-router-topk"]
    assert len(table.differences([("--moe-router-load-balancing-type", "seq_aux_loss")])) == 1


def test_the_stages_of_deepseek_are_those_of_nvidias_recipe() -> None:
    """Megatron-LM at d48bd6b, examples/moe_recipes/deepseek_v3, has 61 layers and one of multi-token prediction."""
    run = hugging_face_run("deepseek-v3")
    topology = replace(run.topology, pp=4, vpp=4, partition="layout")
    wide = replace(run, topology=topology, workload=replace(run.workload, global_batch=64 * topology.dp))
    flags = {flag[0]: flag[-1] for flag in megatron_core_flags(wide)}
    assert flags["--pipeline-model-parallel-layout"] == "Et*4|(tttt|)*14tmL"
    assert "--num-layers-per-virtual-pipeline-stage" not in flags
    assert_exact_or_refused(wide)
    two = replace(wide, topology=replace(topology, pp=2, vpp=1))
    assert ("--pipeline-model-parallel-layout", f"Et*31|{'t' * 30}mL") in megatron_core_flags(two)
    assert_exact_or_refused(two)
    assert "'Et*4|(tttt|)*14tmL'" in bundle(wide, "megatron-bridge", SITE)["recipe.py"]


@pytest.mark.parametrize(
    ("format_name", "words"),
    [
        ("megatron-core", ["--overlap-moe-expert-parallel-comm"]),
        (
            "megatron-bridge",
            [
                "from megatron.bridge.training.comm_overlap import CommOverlapConfig\n",
                "config.comm_overlap = config.comm_overlap or CommOverlapConfig(tp_comm_overlap=False)\n",
                "config.comm_overlap.overlap_moe_expert_parallel_comm = True\n",
            ],
        ),
    ],
)
def test_an_overlapped_exchange_is_exported_with_more_connections(format_name: str, words: list[str]) -> None:
    run = bloom("tp1-pp1-dp8-mbs1-z1-rnone-ep8", model="qwen3-30b-a3b", nodes=1, global_batch=32, precision="bf16")
    run = replace(run, workload=replace(run.workload, framework="megatron-core"))
    for overlap, connections in ((False, 1), (True, 32)):
        topology = replace(run.topology, moe_overlap=overlap)
        text = "".join(exported(replace(run, topology=topology), format_name).values())
        assert f"export CUDA_DEVICE_MAX_CONNECTIONS={connections}\n" in text
        assert all((word in text) == overlap for word in words)
