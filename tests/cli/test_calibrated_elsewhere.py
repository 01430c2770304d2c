"""Commands warn of a calibration that was measured on another GPU or in another framework."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tuner.costmodel.evaluation import calibrate_on
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
    ],
)
def test_one_sentence_warns_where_the_gpu_is_another(
    command: str, site: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*command.split(), "H100-80GB-SXM", "--calibration", site).err.count(WARNING) == 1
    here = run(*command.split(), "A100-80GB-SXM", "--calibration", site).err
    assert ("warning" in here) == ("--framework all" in command), "the other frameworks were not measured"


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
