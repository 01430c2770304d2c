"""A site's calibration as a TOML file: readable factors, and the state of the residual."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tuner.core.atomic_write import write_output
from tuner.core.catalog import read_toml, toml_of
from tuner.core.domain import Cluster, Workload
from tuner.core.errors import InputError, TunerWarning
from tuner.core.text import shown
from tuner.costmodel.backing import mismatch
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.residual_features import SMOOTH, Features, is_sequence_parallel
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors

SCHEMA: Final = "tuner/site/1"
_ANY_SCHEMA: Final = "tuner/site/"

_MAX_LOGARITHM: Final = 20.0
"""No measurement is off by such a logarithm."""
_LARGEST_WHOLE: Final = 2.0**53
"""Whole numbers up to this are exact in a float, such as the one that tp, ep and etp make."""


def write_site(path: Path, calibration: Calibration, *, source: str) -> None:
    """Write the file whole or not at all."""
    write_output(path, site_text(calibration, source=source))


def cost_model(calibration: str | Path | Calibration | None) -> CostModel:
    """Return the cost model with a calibration, which may be the path of a calibration file."""
    if calibration is None:
        return CostModel()
    return CostModel(calibration=calibration if isinstance(calibration, Calibration) else read_site(Path(calibration)))


def warn_of_mismatch(calibration: Calibration, settings: Iterable[tuple[Workload, Cluster]]) -> None:
    """Warn if a calibration has no measurement of the GPU or framework of one of these settings."""
    if sentence := mismatch(calibration, settings):
        warnings.warn(TunerWarning(sentence), stacklevel=3)


def site_text(calibration: Calibration, *, source: str) -> str:
    """The file's text."""
    known = calibration.known
    lines = [
        "# Calibration file of tuner; pass it to other commands with --calibration.",
        f"schema = {_text(SCHEMA)}",
        f"source = {_text(source)}",
        *(["simulated = true"] if calibration.simulated else []),
        f"measured_on = [{', '.join(map(_pair, sorted(calibration.measured_on)))}]",
        "",
        "# Factors for the cost model's constants.",
        "[factors]",
        *(f"{field.name} = {getattr(calibration.site, field.name):.6g}" for field in fields(SiteFactors)),
        "",
        "[memory]",
        f"deviation = {calibration.memory_deviation:.6g}",
        f"runs = {calibration.weighed}",
        "",
        "# Uncertainty of the time factors: covariance of their logarithms, in the order above.",
        "[time]",
        f"spread = [{', '.join(_numbers(row) for row in calibration.spread)}]",
        f"features = [{', '.join(_text(name) for name in SMOOTH)}]",
        f"rows = {len(known) if known else 0}",
        f"era = {_text(calibration.period)}",
    ]
    for place in range(len(known) if known else 0):
        assert known is not None  # noqa: S101 - for the type checker
        lines += [
            "",
            "[[row]]",
            f"features = {_numbers(known.smooth[place])}",
            f"cliff = [{', '.join(f'{number:.0f}' for number in known.cliff[place])}]",
            f"kernel = {_text(known.kernel[place])}",
            f"slopes = {_numbers(calibration.slopes[place])}",
            f"residual = {calibration.residual[place]:.9g}",
            f"noise = {calibration.noise[place]:.9g}",
            f"era = {_text(known.period[place])}",  # the last, for a string that is cut off is no string
        ]
    return "\n".join(lines) + "\n"


def read_site(path: Path) -> Calibration:
    """The calibration in a file that `write_site` made; warns of one on measurements of the simulated cluster."""
    known = _understood(read_toml(path), str(path))
    if known.simulated:
        warnings.warn(TunerWarning(f"{path} is calibrated on SIMULATED measurements."), stacklevel=2)
    return known


def site_of(text: str, name: str) -> Calibration:
    """The calibration in a text that `site_text` made."""
    return _understood(toml_of(text, name), name)


def _understood(table: Mapping[str, Any], name: str) -> Calibration:
    schema = table.get("schema")
    if schema != SCHEMA and not str(schema).startswith(_ANY_SCHEMA):
        raise InputError(
            f"{name} is not a calibration file: its schema must be {SCHEMA!r}; 'tuner calibrate' writes one."
        )
    try:
        if schema != SCHEMA or list(table["time"]["features"]) != list(SMOOTH):
            raise InputError(f"{name} was made by another version of tuner; recreate it with tuner calibrate.")
        return _calibration(table)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{name} is damaged ({type(error).__name__}: {error}); recreate it with tuner calibrate."
        ) from None


def _calibration(table: Mapping[str, Any]) -> Calibration:
    rows = table.get("row", [])
    if len(rows) != _count(table["time"]["rows"]):
        raise ValueError(f"it has {len(rows)} rows and should have {table['time']['rows']}")
    site = SiteFactors(**{name: _factor(value) for name, value in table["factors"].items()})
    spread = _array([table["time"]["spread"]], (1, len(TIME_FACTORS), len(TIME_FACTORS)))[0]
    plain = Calibration(
        site=site,
        spread=spread,
        period=_word(table["time"]["era"]),
        memory_deviation=_factor(table["memory"]["deviation"]),
        weighed=_count(table["memory"]["runs"]),
        simulated=table.get("simulated") is True,
        measured_on=frozenset(map(_two_words, _list(table["measured_on"]))),
    )
    if not rows:
        return plain
    kernels = [_word(row["kernel"]) for row in rows]
    return replace(
        plain,
        known=Features(
            smooth=_array((row["features"] for row in rows), (len(rows), len(SMOOTH))),
            cliff=_array((row["cliff"] for row in rows), (len(rows), 3), most=_LARGEST_WHOLE),
            kernel=np.array(kernels),
            sequence_parallel=np.array([is_sequence_parallel(kernel) for kernel in kernels]),
            period=np.array([_word(row["era"]) for row in rows]),
        ),
        slopes=_array((row["slopes"] for row in rows), (len(rows), len(TIME_FACTORS))),
        residual=_array((row["residual"] for row in rows), (len(rows),), most=_MAX_LOGARITHM),
        noise=_array((_factor(row["noise"]) for row in rows), (len(rows),)),
    )


def _array(values: Iterable[Any], shape: tuple[int, ...], *, most: float = 1e9) -> Any:
    given = list(values)
    array = np.array(given, dtype=np.float64)
    if array.shape != shape or not (np.abs(array) <= most).all() or not all(map(_is_number, _flat(given))):
        raise ValueError(f"expected {' x '.join(map(str, shape))} numbers of at most {most:g}")
    return array


def _flat(values: Any) -> Iterable[Any]:
    return (each for value in values for each in _flat(value)) if isinstance(values, list) else (values,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is no list")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
        raise ValueError(f"{shown(value)} is no count")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text")
    return value


def _two_words(value: Any) -> tuple[str, str]:
    first, second = _list(value)
    return _word(first), _word(second)


def _factor(value: Any) -> float:
    if not _is_number(value) or not 1e-12 < value < 1e6:
        raise ValueError(f"{shown(value)} is not a positive number")
    return float(value)


def _numbers(values: Iterable[float]) -> str:
    return "[" + ", ".join(f"{float(value):.9g}" for value in values) + "]"


def _pair(pair: tuple[str, str]) -> str:
    return f"[{', '.join(map(_text, pair))}]"


def _text(text: str) -> str:
    """Return any text as a TOML string."""
    escaped = "".join(
        letter if letter.isprintable() and letter not in '"\\' else f"\\U{ord(letter):08X}" for letter in text
    )
    return f'"{escaped}"'
