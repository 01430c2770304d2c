"""Commands warn of a calibration that was measured on another GPU or in another framework."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.evaluation import calibrate_on
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.site_file import write_site
from tuner.tables import Defaults, read_table

WARNING = "warning: the calibration was measured on A100-80GB-SXM with megatron-core, not on H100-80GB-SXM"
SPACE = "--model llama-3-8b --nodes 2 --global-batch 64 --set tp=1,2 --set recompute=none"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sites") / "a100.toml"
    defaults = Defaults.parse(["framework=megatron-core"])
    rows = [row for row in read_table(ROOT / "corpus" / "aleph-13b-a100.csv", defaults).rows if row.timed]
    write_site(path, calibrate_on(rows[:3]), source="three rows")
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        f"plan {SPACE} --gpu",
        f"plan {SPACE} --framework all --gpu",
        f"explain tp1-pp1-mbs1-z1 {SPACE} --gpu",
        f"optimize {SPACE} --budget 1 --gpu",
        "max-batch --model llama-3-8b --nodes 1 --framework megatron-core --set tp=8 --gpu",
        "compare --model llama-3-8b --nodes 1 --framework megatron-core --set tp=4,8 --gpu",
    ],
)
def test_one_sentence_warns_where_the_gpu_is_another(
    command: str, site: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*command.split(), "H100-80GB-SXM", "--calibration", site).err.count(WARNING) == 1
    here = run(*command.split(), "A100-80GB-SXM", "--calibration", site).err
    assert ("warning" in here) == ("--framework all" in command), "the other frameworks were not measured"


@pytest.mark.parametrize(
    ("places", "calibrated", "sentence"),
    [
        ([("CPU", "")], "CPU", "was measured on CPU, not on H100-80GB-SXM"),
        ([], "a GPU that its file does not name", "does not record the GPU on which it was measured"),
    ],
)
def test_factors_of_a_machine_without_gpus_are_not_those_of_a_gpu(
    places: list[tuple[str, str]], calibrated: str, sentence: str, run: Run, tmp_path: Path
) -> None:
    """`tuner doctor --measure` on CPUs; intervals reach as far as without it, and impossible FLOP/s are pointed out."""
    file = str(tmp_path / "machine.toml")
    factors = SiteFactors(products=2.5, traffic=2.0)
    write_site(Path(file), Calibration(site=factors, measured_on=frozenset(places)), source="tuner doctor --measure")
    plan = ["plan", "--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "1", "--top", "1"]
    said = run(*plan, "--calibration", file)
    assert said.err.count(sentence) == 1
    assert f"Estimates (calibrated on {calibrated}), not measurements" in said.out
    assert "Uncalibrated" not in said.out
    document = json.loads(run(*plan, "--calibration", file, "--json").out)
    assert sentence in document["calibration"]["mismatch"]
    (row,) = document["top"]
    assert row["mfu"] > 1
    doubt = f"MFU {row['mfu']:.1%}; above 100% of the GPU's peak is impossible"
    assert doubt in said.out
    assert doubt in document["hint"]
    explained = run("explain", row["key"], *plan[1:-2], "--calibration", file)
    assert doubt in explained.out
    assert f"calibration: {calibrated}\n" in explained.out
    plain = json.loads(run(*plan, "--json").out)["top"][0]
    assert row["sec_per_iter_high"] / row["sec_per_iter"] >= plain["sec_per_iter_high"] / plain["sec_per_iter"] * 0.99
    assert "impossible" not in run(*plan).out


def test_a_table_of_another_gpu_is_evaluated_with_a_warning(site: str, run: Run) -> None:
    said = run("evaluate", str(ROOT / "corpus" / "enoki-h100.csv"), "--calibration", site)
    assert said.err.count(WARNING) == 1
    assert run("evaluate", str(ROOT / "corpus" / "aleph-13b-a100.csv"), "--calibration", site).err == ""


def test_documents_and_text_state_the_calibration(site: str, run: Run) -> None:
    for command in ("plan", "explain tp1-pp1-mbs1-z1"):
        words = [*command.split(), *SPACE.split(), "--gpu"]
        assert json.loads(run(*words, "H100-80GB-SXM", "--json").out)["calibration"] is None
        there, here = (
            json.loads(run(*words, gpu, "--calibration", site, "--json").out)["calibration"]
            for gpu in ("H100-80GB-SXM", "A100-80GB-SXM")
        )
        assert WARNING.removeprefix("warning: ") in there["mismatch"]
        assert here == there | {"mismatch": None}
        assert (here["timed_rows"], here["simulated"]) == (3, False)
        assert {place["gpu"] for place in here["measured_on"]} == {"A100-80GB-SXM"}
    explain = ["explain", "tp1-pp1-mbs1-z1", *SPACE.split(), "--gpu"]
    assert "\ncalibration: none\n" in run(*explain, "H100-80GB-SXM").out
    assert "\ncalibration: this site\n" in run(*explain, "A100-80GB-SXM", "--calibration", site).out
    assert (
        "\ncalibration: A100-80GB-SXM with megatron-core\n" in run(*explain, "H100-80GB-SXM", "--calibration", site).out
    )
