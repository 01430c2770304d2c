"""GPUs, clusters and models by name, and the files that a user adds."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tuner.core import catalog
from tuner.core.errors import InputError, UnknownName
from tuner.core.resources import catalog_files
from tuner.space.build import space_for
from tuner.tables import read_table

SHIPPED = [
    *("V100-16GB-SXM", "V100-32GB-SXM", "A100-40GB-SXM", "A100-80GB-SXM", "A100-40GB-PCIe", "A100-80GB-PCIe"),
    *("H100-80GB-SXM", "H100-80GB-PCIe", "H100-96GB-SXM", "GH200-96GB", "H200-141GB-SXM", "H20"),
    *("B200-180GB-SXM", "GB200-192GB", "B300-270GB", "GB300-288GB"),
    *("RTX6000ADA-48GB", "L40S-48GB", "RTX4090-24GB"),
    *("MI250X-128GB", "MI300X-192GB", "MI325X-256GB", "MI350X", "MI355X-288GB"),
]
FIGURES = {"memory_gib", "memory_gb_s", "sms", "peak_tflops", "intra_node_gb_s", "inter_node_gbit_s", "attention"}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_gpus_that_people_train_on_are_there(name: str) -> None:
    card = catalog.gpu(name)
    assert card.name == name
    assert 15 * 2**30 < card.memory < 300 * 2**30
    assert 8e11 < card.memory_bandwidth < 1e13
    assert 70 < card.sms < 400
    assert card.peak_flops["fp32"] < card.peak_flops["fp16"] < 1e16
    assert card.peak_flops.get("fp4", 1e16) > card.peak_flops.get("fp8", 0.0) * 1.9


def test_every_figure_of_a_gpu_names_its_data_sheet() -> None:
    sheets, used = _sheets(), set()
    for name, table in catalog.catalog().gpu.items():
        assert set(table["source"]) == FIGURES | ({"achievable", "nvlink_domain", "gpus_per_node"} & set(table)), name
        used |= set(table["source"].values())
    assert used == set(sheets)
    assert all(len(text) > 20 for text in sheets.values())


def _sheets() -> dict[str, str]:
    file = next(path for path in catalog_files() if path.name == "gpus.toml")
    found: dict[str, str] = catalog.read_toml(file)["sheet"]
    return found


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80GB-SXM"),
        ("AMD Instinct MI300X", "MI300X-192GB"),
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_prints(printed: str, name: str) -> None:
    assert catalog.gpu(printed).name == name


def test_a_gpus_name_is_found_by_its_aliases_and_in_any_case() -> None:
    assert catalog.gpu("a100-80gb-sxm") == catalog.gpu("A100-SXM4-80GB") == catalog.gpu("A100 80GB SXM")


def test_the_h100_of_96_gb_is_the_hbm2e_card_and_the_gh200_another() -> None:
    """torchtitan's description of its hosts: 96GB HBM2e with 2.4 TB/sec; the superchip has HBM3 at 4 TB/s."""
    assert catalog.gpu("H100-96GB").memory_bandwidth == catalog.gpu("H100-SXM5-96GB").memory_bandwidth == 2.4e12
    assert catalog.gpu("H100-96GB").peak_flops == catalog.gpu("H100-80GB-SXM").peak_flops
    assert catalog.gpu("GH200 480GB").memory_bandwidth == catalog.gpu("GH200-96GB").memory_bandwidth == 4e12


@pytest.mark.parametrize(("old", "new"), [("B200", "B300"), ("GB200", "GB300"), ("MI350X", "MI355X")])
def test_what_follows_a_gpu_is_nowhere_behind_it(old: str, new: str) -> None:
    before, after = catalog.gpu(old), catalog.gpu(new)
    assert after.memory >= before.memory
    assert all(after.peak_flops[precision] >= peak for precision, peak in before.peak_flops.items())


def test_an_unknown_gpu_suggests_the_closest() -> None:
    with pytest.raises(UnknownName, match="did you mean A100-80GB-SXM"):
        catalog.gpu("A100-80G-SXM")


def test_the_beginning_of_a_name_suggests_the_names_that_start_with_it() -> None:
    with pytest.raises(UnknownName, match="did you mean H100-80GB-PCIe, H100-80GB-SXM or H100-96GB-SXM"):
        catalog.gpu("h100")


def test_the_default_cluster_is_the_reports() -> None:
    cluster = catalog.cluster("bloom-48")
    assert (cluster.nodes, cluster.gpus_per_node, cluster.gpus) == (48, 8, 384)
    assert cluster.inter_node.bandwidth == 400e9 / 8
    assert cluster.intra_node.bandwidth == 300e9


GPU_TOML = """
[gpu.TestCard-24GB]
memory_gib = 24
memory_gb_s = 1000
sms = 100
peak_tflops = { fp32 = 50, fp16 = 200, bf16 = 200 }
intra_node_gb_s = 32
inter_node_gbit_s = 25
"""
CLUSTER_TOML = '[cluster.lab]\nnodes = 4\ngpus_per_node = 2\ngpu = "TestCard-24GB"\nnode_gbit_s = 100\n' + GPU_TOML
MODEL_TOML = 'layers = 12\nhidden = 768\nheads = 12\nvocab = 50257\nseq = 1024\nname = "mine"\n'


def test_a_user_adds_a_gpu_a_cluster_and_a_model_without_touching_code(tmp_path: Path, run: Run) -> None:
    for name, text in (("gpu", GPU_TOML), ("cluster", CLUSTER_TOML), ("model", MODEL_TOML)):
        (tmp_path / f"{name}.toml").write_text(text)
    assert catalog.gpu(str(tmp_path / "gpu.toml")).peak_flops["bf16"] == 200e12
    lab = catalog.cluster(str(tmp_path / "cluster.toml"))
    assert (lab.gpus, lab.gpu.name, lab.inter_node.bandwidth) == (8, "TestCard-24GB", 100e9 / 8)
    mine = catalog.model(str(tmp_path / "model.toml"))
    assert (mine.name, mine.parameters) == ("mine", 124_439_808)
    said = run("plan", "--json", "--model", str(tmp_path / "model.toml"), "--cluster", str(tmp_path / "cluster.toml"))
    assert said.code == 0
    assert json.loads(said.out)["cluster"]["gpu"] == "TestCard-24GB"


@pytest.mark.parametrize(
    "text",
    [
        "[" + ".".join(["a"] * 200_000) + "]\n",
        ".".join(["a"] * 200_000) + " = 1\n",
        "".join(f"[a.b{number}]\nx = 1\n" for number in range(60_000)),
        "a = " + "[" * 100_000 + "]" * 100_000,
    ],
)
def test_toml_that_would_take_minutes_is_refused_before_it_is_parsed(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(text)
    with pytest.raises(InputError, match="is not valid TOML"):
        catalog.model(str(tmp_path / "model.toml"))


def test_lines_of_figures_are_no_deep_keys() -> None:
    figures = ", ".join(["1.5"] * 100)
    assert catalog.toml_of(f"a = [\n{figures},\n{figures}\n]\n", "figures")["a"] == [1.5] * 200


def test_the_sizes_of_a_cluster_are_whole_numbers(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER_TOML.replace("gpus_per_node = 2", "gpus_per_node = [2]"))
    with pytest.raises(InputError, match="gpus_per_node must be a whole number, not a list of 1"):
        catalog.cluster(str(tmp_path / "cluster.toml"))


def test_the_environment_adds_files_to_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "site.toml").write_text(CLUSTER_TOML + "[model.ours]\n" + MODEL_TOML)
    monkeypatch.setenv("TUNER_CATALOG", str(tmp_path / "site.toml"))
    catalog.catalog.cache_clear()
    request.addfinalizer(catalog.catalog.cache_clear)
    assert catalog.gpu("testcard-24gb").sms == 100
    assert catalog.cluster("lab").nodes == 4
    assert catalog.model("ours").layers == 12


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("m.toml", "layers = 12\nhidden = 768\nheads = 12\nseq = 1024\n", "lacks its field vocab."),
        ("m.toml", MODEL_TOML + "hiden = 3\n", "m.toml: model 'mine' has no field 'hiden'; did you mean hidden"),
        (
            "m.toml",
            MODEL_TOML.replace("768", '"768"'),
            "m.toml: model 'mine': model field hidden must be a whole",
        ),
        ("m.toml", "layers = = 3", "is not valid TOML"),
        ("m.toml", "", "lacks its field layers."),
        ("m.toml", "[model.a]\nlayers=1\n[model.b]\nlayers=2\n", "must have exactly one table [model.NAME]"),
        ("m.toml", "[cluster.a]\nnodes=1\n", "has no table [model.NAME]"),
        ("m.json", "", "is not valid JSON: "),
        ("m.json", "[1, 2]", "does not contain a JSON object"),
        ("m.json", "[" * 100_000, "is not valid JSON: "),
        ("m.json", '{"layers": 12, "heads": 12, "vocab": 5, "seq": 4}', "lacks its field hidden."),
        (
            "m.json",
            '{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2}',
            "m.json lacks num_hidden_layers.",
        ),
        (
            "m.json",
            '{"model_type": "whisper", "d_model": 8, "n_layer": 2, "n_head": 2, "vocab_size": 9}',
            "is unknown",
        ),
        (
            "m.json",
            '{"hidden_size": 8, "n_layer": 2, "n_head": 2, "vocab_size": 9}',
            "model_type None is unknown",
        ),
        ("m.json", '{"model_type": "gpt2", "n_embd": "a", "n_layer": 2, "n_head": 2, "vocab_size": 9}', "whole number"),
    ],
)
def test_a_model_file_that_cannot_be_used_says_why_in_one_sentence(
    tmp_path: Path, file: str, text: str, complaint: str, run: Run
) -> None:
    (tmp_path / file).write_text(text)
    said = run("plan", "--model", str(tmp_path / file))
    assert said.code == 2
    assert complaint in said.err
    assert said.err.startswith("tuner: ")
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GPU_TOML.replace("sms = 100\n", ""), "lacks its field sms."),
        (GPU_TOML.replace("sms = 100", "sms = 0"), "gpu field sms must be between 1 and 1,000,000, not 0."),
        (GPU_TOML.replace("= 32", "= 'fast'"), "intra_node_gb_s must be a positive number, not 'fast'."),
        (GPU_TOML.replace("{ fp32 = 50, fp16 = 200, bf16 = 200 }", "200"), "peak_tflops must be a table"),
        (GPU_TOML.replace("sms", "smx"), "did you mean sms"),
        ("gpu = 3\n", "must have exactly one table [gpu.NAME]"),
    ],
)
def test_a_gpu_file_that_cannot_be_used_says_why_in_one_sentence(
    tmp_path: Path, text: str, complaint: str, run: Run
) -> None:
    (tmp_path / "card.toml").write_text(text)
    said = run("plan", "--gpu", str(tmp_path / "card.toml"))
    assert said.code == 2
    assert complaint in said.err


def test_a_file_that_is_none_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file or folder org/llama-3.1-70B; .* download its config\.json"):
        catalog.model("org/llama-3.1-70B")
    with pytest.raises(InputError, match="there is no file"):
        catalog.model(str(tmp_path / "missing.json"))
    with pytest.raises(InputError, match=r"there is no file .*config\.json"):
        catalog.model(str(tmp_path))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        catalog.model(str(tmp_path / "binary.json"))
    (tmp_path / "large.json").write_bytes(b" " * (5 << 20))
    with pytest.raises(InputError, match="is larger than 4,194,304 bytes"):
        catalog.model(str(tmp_path / "large.json"))
    with pytest.raises(InputError, match="is not a file"):
        catalog.model(str(tmp_path / "large.json" / "x.json"))


def test_a_pipe_is_read_as_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "model.toml"
    os.mkfifo(pipe)
    text = "hidden = 64\r\nlayers = 2\r\nheads = 2\r\nvocab = 256\r\nseq = 32\r\n"
    with ThreadPoolExecutor(1) as writer:
        writer.submit(pipe.write_text, text, newline="")
        assert catalog.read_text(pipe) == text.replace("\r", "")


@pytest.mark.parametrize(
    "option", [("--model", "model", "own"), ("--gpu", "GPU", "card"), ("--cluster", "cluster", "there")]
)
def test_a_name_that_is_a_file_says_how_the_file_is_read(
    option: tuple[str, str, str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    for name in ("card", "there", "own/config.json"):
        (tmp_path / name).write_text("{")
    flag, kind, name = option
    said = run("plan", flag, name)
    assert f"there is no {kind} called '{name}'" in said.err
    assert f"For the {'folder' if name == 'own' else 'file'} {name}, write ./{name}." in said.err
    not_json = "card is not valid JSON (the name of a TOML file ends in .toml): ".replace("card", name)
    read = run("plan", flag, f"./{name}").err
    assert "is not valid TOML" in read or "config.json is not valid JSON: " in read or not_json in read


PUBLISHED = json.loads((ROOT / "tests/data/huggingface/counts.json").read_text())


@pytest.mark.filterwarnings("ignore:.* is read without its vision tower")
@pytest.mark.filterwarnings("ignore:.* does not say whether its embeddings are tied")
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_hugging_face_config_gives_the_published_parameter_count(name: str) -> None:
    model = catalog.model(str(ROOT / f"tests/data/huggingface/{name}.json"))
    assert model.parameters - model.mtp_parameters == PUBLISHED[name]["parameters"]
    assert model.name == name


def test_a_checkpoints_folder_is_read_through_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text((ROOT / "tests/data/huggingface/llama-3-8b.json").read_text())
    assert catalog.model(str(folder)) == catalog.model(str(folder / "config.json"))
    assert catalog.model(str(folder)).name == "my-llama"
    monkeypatch.chdir(folder)
    assert catalog.model("config.json") == catalog.model("./config.json") == catalog.model(str(folder))


@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
def test_an_explicit_null_in_a_config_means_off(key: str, tmp_path: Path) -> None:
    config = json.loads((ROOT / "tests/data/huggingface/llama-7b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, key: None}))
    assert catalog.model(str(tmp_path)).parameters == PUBLISHED["llama-7b"]["parameters"]


@pytest.mark.parametrize("name", ["pythia-6.9b", "gpt2", "starcoder", "llama-7b", "opt-125m", "gpt-j-6b", "falcon-7b"])
def test_a_config_without_model_type_is_read_by_its_architecture(name: str, tmp_path: Path) -> None:
    config = json.loads((ROOT / f"tests/data/huggingface/{name}.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert catalog.model(str(tmp_path)).parameters == PUBLISHED[name]["parameters"]


def test_a_model_file_says_how_it_is_trained(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MODEL_TOML + 'attention = "fused"\nprecision = "fp16"\n')
    workload = space_for(model=str(tmp_path / "m.toml")).workload
    assert (workload.attention, workload.precision) == ("fused", "fp16")
    (tmp_path / "m.toml").write_text(MODEL_TOML + 'attention = "wombat"\n')
    with pytest.raises(InputError, match="attention must be eager, fused, flash1 or flash2, not 'wombat'"):
        space_for(model=str(tmp_path / "m.toml"))


def test_another_gpu_keeps_the_network_that_the_cluster_states(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER_TOML)
    own = space_for(cluster=str(tmp_path / "cluster.toml"), gpu="A100-80GB-SXM").cluster
    assert (own.name, own.gpu.name, own.inter_node.bandwidth) == ("lab", "A100-80GB-SXM", 100e9 / 8)
    assert own.intra_node.bandwidth == 300e9
    usual = space_for(gpu="A100-80GB-SXM", nodes=2).cluster
    assert usual.inter_node.bandwidth == 8 * 200e9 / 8


RUBBISH = [
    ("[gpu.X]\naliases = 3\n", "aliases must be a list of strings, not 3."),
    ("[gpu.X]\naliases = [1]\n", "aliases must be a list of strings"),
    ("[family.f]\nvocab = 3\n", "lacks its field members."),
    ('[family.f]\nmembers = [4]\nlayers_per_4_heads = "x"\nhidden_per_head = 3\n', "must be whole numbers"),
    ("[family]\nx = 3\n", "[family] must contain tables such as [family.NAME]."),
    ("[rubbish]\n", "unknown table [rubbish]; the tables are gpu, cluster, model and family."),
    ("x = " + "[" * 3000, "is not valid TOML"),
    ("x = " + "1" * 5000, "is not valid TOML"),
]


@pytest.mark.parametrize(("text", "complaint"), RUBBISH, ids=lambda value: value[:30])
def test_rubbish_in_a_users_catalog_is_named(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, run: Run
) -> None:
    (tmp_path / "site.toml").write_text(text)
    monkeypatch.setenv("TUNER_CATALOG", str(tmp_path / "site.toml"))
    catalog.catalog.cache_clear()
    request.addfinalizer(catalog.catalog.cache_clear)
    said = run("plan", "--gpu", "nothing-known")
    assert said.code == 2
    assert complaint in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "config",
    [
        {"head_dim": "ab", "num_attention_heads": 10**20},
        {"head_dim": [1], "num_attention_heads": 10**10},
        {"hidden_size": 10**4000},
        {"max_position_embeddings": None, "model_type": "opt"},
        {"num_experts": "a\nb"},
        {"model_type": ["llama"]},
        {"vocab_size": {"a": 1}},
    ],
    ids=str,
)
def test_extreme_values_in_a_config_are_answered_at_once(config: dict[str, object], tmp_path: Path, run: Run) -> None:
    sound = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 99, "ffn_dim": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **sound, **config}))
    said = run("plan", "--model", str(tmp_path), "--global-batch", "32")
    assert said.code in (0, 2)
    assert said.err.count("\n") == (said.code == 2)


@pytest.mark.parametrize(
    ("card", "node", "domain"), [("GB200", 4, 72), ("GB300", 4, 72), ("B200", 8, 8), ("H100", 8, 8)]
)
def test_nodes_and_nvlink_domains_are_those_of_the_gpus_system_everywhere(
    card: str, node: int, domain: int, tmp_path: Path
) -> None:
    """In options, in a file of a cluster and in a measurement table, unless they state others."""
    name = next(known for known in catalog.catalog().gpu if known.startswith(f"{card}-"))
    (tmp_path / "lab.toml").write_text(f'[cluster.lab]\nnodes = 18\ngpus_per_node = {node}\ngpu = "{name}"\n')
    (tmp_path / "runs.csv").write_text(f"gpu,layers,hidden,tp,pp,dp,sec_per_iter\n{name},32,4096,2,2,{2 * node},1.0\n")
    run = read_table(tmp_path / "runs.csv").rows[0].run
    assert run is not None
    for known in (space_for(gpu=name).cluster, catalog.cluster(str(tmp_path / "lab.toml")), run.cluster):
        assert (known.gpus_per_node, known.domain) == (node, domain)
    assert space_for(gpu=name, gpus_per_node=2).cluster.gpus_per_node == 2
    assert space_for(gpu=name, cluster="hgx-h100").cluster.gpus_per_node == 8
