"""The fit of constants: what it finds on a small corpus of the model's own making, and what it records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import fit
from benchmarks.fit_priors import MEMORY_PRIORS, TIME_PRIORS
from benchmarks.fit_problem import Problem, constants_set, memory_samples, time_samples, value_of
from tuner.core.catalog import read_toml
from tuner.costmodel import constants, kernels
from tuner.costmodel.constants import Constant
from tuner.costmodel.evaluation import evaluate
from tuner.tables import Row, read_table

HEADER = (
    "group,gpu,nodes,gpus_per_node,layers,hidden,heads,seq,vocab,tp,pp,dp,zero,mbs,gbs,recompute,status,"
    "sec_per_iter,mem_gib,mem_kind\n"
)
LAYOUTS = (
    *((1, 1, 16, 1), (2, 1, 8, 2), (4, 1, 4, 1), (8, 1, 2, 2)),
    *((2, 2, 4, 1), (4, 2, 2, 2), (1, 4, 4, 1), (8, 2, 1, 4)),
)
"""tp, pp, dp and micro-batch on two nodes."""
PRIORS = {name: replace(TIME_PRIORS[name], deviation=1.0) for name in ("SUSTAINED_PRODUCT_SHARE", "RING_SHARE")}
MEMORY = {"COMMUNICATOR_BYTES": replace(MEMORY_PRIORS["COMMUNICATOR_BYTES"], deviation=1.0)}
TRUE = {"SUSTAINED_PRODUCT_SHARE": 0.80, "RING_SHARE": 0.30}


def table(folder: Path, *, hidden: int, cells: Sequence[str]) -> list[Row]:
    """Rows of the layouts, each with its status, seconds, memory and kind of memory."""
    path = folder / f"h{hidden}.csv"
    lines = [
        f"g{tp > 2},A100-80GB-SXM,2,8,24,{hidden},{hidden // 128},2048,51200,{tp},{pp},{dp},1,{mbs},32,none,{cell}\n"
        for (tp, pp, dp, mbs), cell in zip(LAYOUTS, cells, strict=True)
    ]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return list(read_table(path).rows)


def modelled(folder: Path, hidden: int, values: Mapping[str, float], slower: float = 1.0) -> list[Row]:
    """Rows whose seconds and memory are the model's at these constants; all times a factor slower."""
    table(folder, hidden=hidden, cells=["OK,1,1,smi"] * len(LAYOUTS))
    with constants_set(values):
        made = evaluate(read_table(folder / f"h{hidden}.csv")).guesses.values()
    return table(
        folder,
        hidden=hidden,
        cells=[f"OK,{slower * guess.seconds:.9f},{guess.memory / 2**30:.9f},smi" for guess in made],
    )


def times_problem(folder: Path, slower: float = 1.0) -> Problem:
    """Three sources of different models, of which the last may be slower."""
    samples = [
        sample
        for hidden, factor in ((2048, 1.0), (4096, 1.0), (6144, slower))
        for sample in time_samples(f"h{hidden}", modelled(folder, hidden, TRUE, factor))
    ]
    return Problem(samples, PRIORS)


def test_a_fit_finds_the_constants_that_made_the_rows(tmp_path: Path) -> None:
    """The priors lie 19% and 183% above, with a deviation that lets the rows decide."""
    found = times_problem(tmp_path).fit()
    assert found.values == pytest.approx(TRUE, rel=0.03)
    assert found.deviations["SUSTAINED_PRODUCT_SHARE"] < found.deviations["RING_SHARE"]


def test_a_source_that_is_slow_as_a_whole_moves_its_own_effect(tmp_path: Path) -> None:
    """One cluster of three at half the speed: the constants of the others stay within 5%."""
    assert times_problem(tmp_path, slower=2.0).fit().values == pytest.approx(TRUE, rel=0.05)


def test_a_narrow_prior_holds_against_what_effects_can_explain(tmp_path: Path) -> None:
    """A common level may be the clusters' or the constant's: the fit lies between."""
    priors = {"SUSTAINED_PRODUCT_SHARE": TIME_PRIORS["SUSTAINED_PRODUCT_SHARE"]}
    found = Problem(times_problem(tmp_path).samples, priors).fit().values["SUSTAINED_PRODUCT_SHARE"]
    assert 0.82 < found < 0.93


def test_one_row_with_a_slip_moves_nothing(tmp_path: Path) -> None:
    problem = times_problem(tmp_path)
    sound = problem.fit().values
    rows = modelled(tmp_path, 2048, TRUE)
    slip = [replace(rows[0], seconds=10 * (rows[0].seconds or 0)), *rows[1:]]
    others = [sample for sample in problem.samples if sample.source != "h2048"]
    assert Problem([*time_samples("h2048", slip), *others], PRIORS).fit().values == pytest.approx(sound, rel=0.03)


def test_what_is_left_out_is_not_looked_at(tmp_path: Path) -> None:
    """Without the slow source the fit is that to the two others, and its error is that of a stranger."""
    sound, slow = times_problem(tmp_path), times_problem(tmp_path, slower=1.5)
    whole = sound.fit()
    left_out = slow.fit_without("h6144", whole)
    assert left_out.values == pytest.approx(sound.fit_without("h6144", whole).values, rel=1e-12)
    assert left_out.values == pytest.approx(TRUE, rel=0.05)
    assert slow.error_of("h6144", left_out.values) == pytest.approx(1 / 3, abs=0.03)


def test_a_fit_is_deterministic(tmp_path: Path) -> None:
    assert times_problem(tmp_path).fit() == times_problem(tmp_path).fit()


def test_without_rows_that_tell_a_constant_stays_at_its_prior(tmp_path: Path) -> None:
    """No row has pre-Ampere alignment faults or unfused norms."""
    priors = {"UNFUSED_NORM_BYTES": TIME_PRIORS["UNFUSED_NORM_BYTES"]}
    problem = Problem(time_samples("h2048", modelled(tmp_path, 2048, {})), priors)
    found = problem.fit()
    assert found.values["UNFUSED_NORM_BYTES"] == pytest.approx(80.0)
    assert found.deviations["UNFUSED_NORM_BYTES"] == pytest.approx(0.2)
    assert problem.rows_behind("UNFUSED_NORM_BYTES", found.values) == 0


def test_memory_figures_are_fitted_too(tmp_path: Path) -> None:
    rows = modelled(tmp_path, 2048, {"COMMUNICATOR_BYTES": 1.5e9})
    found = Problem(memory_samples("h2048", rows), MEMORY).fit()
    assert found.values["COMMUNICATOR_BYTES"] == pytest.approx(1.5e9, rel=0.05)


def test_a_row_out_of_memory_raises_what_is_needed(tmp_path: Path) -> None:
    """Rows without a figure count only where the model has them on the wrong side of the card."""
    prior = MEMORY["COMMUNICATOR_BYTES"].value

    def fitted(status: str) -> float:
        rows = table(tmp_path, hidden=2048, cells=[f"{status},,,"] * len(LAYOUTS))
        return Problem(memory_samples("h2048", rows), MEMORY).fit().values["COMMUNICATOR_BYTES"]

    assert fitted("OK") == pytest.approx(prior)
    assert fitted("OOM") > 1.5 * prior


def test_constants_are_set_everywhere_and_put_back() -> None:
    names = ("SUSTAINED_PRODUCT_SHARE", "TILE_SPEEDS", "FLASH_SPEED")
    before = {name: vars(kernels)[name] for name in names}
    with constants_set({"SUSTAINED_PRODUCT_SHARE": 0.5, "TILE_SPEEDS.2.2": 0.6, "FLASH_SPEED.flash1": 0.3}):
        for module in (kernels, constants):
            share, tiles, flash = (vars(module)[name] for name in names)
            assert share == 0.5
            assert tiles == (*before["TILE_SPEEDS"][:2], (128, 64, 0.6), before["TILE_SPEEDS"][3])
            assert flash == before["FLASH_SPEED"] | {"flash1": 0.3}
        assert value_of("FLASH_SPEED.flash1") == 0.3
    assert {name: vars(kernels)[name] for name in names} == before


@pytest.mark.parametrize("name", [*TIME_PRIORS, *MEMORY_PRIORS])
def test_a_prior_is_of_a_constant_and_has_a_reason(name: str) -> None:
    prior = (TIME_PRIORS | MEMORY_PRIORS)[name]
    assert abs(math.log(value_of(name) / prior.value)) < 5 * prior.deviation, "far from what was fitted before"
    assert prior.value <= prior.most
    assert prior.reason


def test_every_fitted_constant_of_the_corpus_can_be_fitted_again() -> None:
    """All but those that are fitted to something outside of it."""
    known = {name.split(".")[0] for name in TIME_PRIORS | MEMORY_PRIORS}
    fitted = {name for name, record in constants.RECORDS.items() if fit.kind_of(record) == "fitted"}
    assert fitted - known == {"CPU_ADAM_SECONDS"}


def test_the_file_has_the_constants_of_the_package() -> None:
    """After a change of a constant: python -m benchmarks.fit --records."""
    recorded = read_toml(fit.CONSTANTS)
    for package, records in fit.PACKAGES.items():
        expected = {name: fit.package_entry(record) for name, record in records.items()}
        assert recorded[package] == expected, "run: python -m benchmarks.fit --records"
    assert set(recorded["fit"]) == set(TIME_PRIORS | MEMORY_PRIORS)
    for name, entry in recorded["fit"].items():
        low, high = entry["interval"]
        assert low <= entry["value"] <= high, name
        assert entry["first_principles"] == pytest.approx((TIME_PRIORS | MEMORY_PRIORS)[name].value, rel=1e-3)


def test_the_package_part_is_rewritten_without_a_fit(tmp_path: Path) -> None:
    entry = {"value": 1.5, "interval": [1.0, 2.0], "reason": 'a "guess"', "rows": 3}
    path = tmp_path / "constants.toml"
    path.write_text(fit.document({"SOFTMAX_BYTES.0": entry}).replace("0.91", "0.12"), encoding="utf-8")
    assert fit.main(["--records", "-o", str(path)]) == 0
    again = read_toml(path)
    assert again["fit"] == {"SOFTMAX_BYTES.0": entry}
    assert again["costmodel"]["SUSTAINED_PRODUCT_SHARE"]["value"] == constants.SUSTAINED_PRODUCT_SHARE


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("no source", "no source"),
        ("fitted to corpus/; 3 by counting", "fitted"),
        ("counted: a read and a write", "first principles"),
        ("half, as assumed, and twice; not fitted", "source"),
        ("arXiv 2205.05198, equation 2", "source"),
    ],
)
def test_the_kind_of_a_constant(source: str, kind: str) -> None:
    assert fit.kind_of(Constant(value=1.0, unit="share", source=source)) == kind


def test_the_program_prints_each_source_and_records_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    for hidden in (2048, 4096):
        modelled(tables, hidden, TRUE)
    monkeypatch.setattr(fit, "TIME_PRIORS", PRIORS)
    monkeypatch.setattr(fit, "MEMORY_PRIORS", MEMORY)
    path = tmp_path / "constants.toml"
    assert fit.main(["--tables", str(tables), "--record", "-o", str(path)]) == 0
    printed = capsys.readouterr().out
    for source in ("h2048", "h4096"):
        assert printed.count(f"| {source} | 8 |") == 2
    entry = read_toml(path)["fit"]["SUSTAINED_PRODUCT_SHARE"]
    assert entry["value"] == pytest.approx(0.8, rel=0.03)
    assert (entry["rows"], entry["sources"]) == (16, 2)
