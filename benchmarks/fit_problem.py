"""Least squares with priors: the constants that best explain the rows of several sources.

    log measured = log model(constants) + effect of the source + effect of the group + noise

The logarithms of the constants have normal priors around their first-principles values. Effects absorb the deviation
that all rows of a source or of a group share, so that a slow cluster shifts its own effect rather than a constant.
Noise and effects follow Student's t-distribution, which gives outliers little weight. A row that is only known to fit
or to run out of memory adds to the cost if the model puts it on the wrong side of the card's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np

from benchmarks.fit_priors import Prior
from tuner.core.columns import FloatArray
from tuner.core.domain import MemoryKind, MemoryStage
from tuner.costmodel import constants
from tuner.costmodel.memory import limit, shown_bytes, worst_need
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import seconds
from tuner.tables import Row, RowBlock, blocks

NOISE: Final = 0.05
"""Standard deviation of the logarithm of a row's figure, in addition to the effects of its source and group."""
SOURCE_DEVIATION: Final = 0.08
GROUP_DEVIATION: Final = 0.06
"""Standard deviations of the effects of sources and of groups."""
FREEDOM: Final = 4.0
"""Degrees of freedom of the t-distribution of noise and effects; the fewer, the less weight an outlier gets."""
MAX_ROWS: Final = 20.0
"""Largest weight of a source, in rows, because the errors of its rows are correlated."""
STEP: Final = 0.01
"""Change of a constant's logarithm for finite differences."""
STEPS: Final = 20
CLOSE: Final = 1e-3
"""Relative change of the cost below which a fit ends."""
SITE: Final = SiteFactors()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A block of rows of one source, and the function that estimates them."""

    source: str
    block: RowBlock
    groups: tuple[str, ...]
    measured: FloatArray
    """Seconds or bytes; for rows without a figure, the card's memory."""
    side: FloatArray
    """0 if `measured` is a figure, 1 if it is a lower bound of the truth, -1 if it is an upper bound."""
    estimate: Callable[[RowBlock], FloatArray]


def time_samples(source: str, rows: Sequence[Row]) -> list[Sample]:
    """Return the samples of a source's timed rows."""
    return [
        _sample(source, block, [row.seconds for row in block.rows], lambda block: seconds(block.columns, SITE))
        for block in blocks(rows)
    ]


def memory_samples(source: str, rows: Sequence[Row]) -> list[Sample]:
    """Return the samples of a source's rows with a memory figure, and of its rows with the status OK or OOM."""
    found = []
    for kind, stage in sorted({(row.memory_kind, row.memory_stage) for row in rows if row.weighed}):
        own = [row for row in rows if row.weighed and (row.memory_kind, row.memory_stage) == (kind, stage)]

        def shown(block: RowBlock, kind: MemoryKind = kind, stage: MemoryStage = stage) -> FloatArray:
            return shown_bytes(block.columns, SITE, kind, stage)

        found += [_sample(source, block, [row.memory for row in block.rows], shown) for block in blocks(own)]
    for block in blocks(row for row in rows if row.status in ("OK", "OOM")):
        sides = [1.0 if row.status == "OOM" else -1.0 for row in block.rows]
        card = [limit(block.columns)] * len(sides)
        found.append(_sample(source, block, card, lambda block: worst_need(block.columns, SITE).total, sides))
    return found


def _sample(
    source: str,
    block: RowBlock,
    measured: Sequence[float | None],
    estimate: Callable[[RowBlock], FloatArray],
    sides: Sequence[float] | None = None,
) -> Sample:
    return Sample(
        source=source,
        block=block,
        groups=tuple(row.group for row in block.rows),
        measured=np.array(measured, dtype=np.float64),
        side=np.array(sides or [0.0] * len(block.rows)),
        estimate=estimate,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The result of a fit."""

    values: dict[str, float]
    deviations: dict[str, float]
    """Standard deviations of the constants' logarithms."""
    cost: float


class Problem:
    """The samples of some sources, and the constants to fit to them."""

    def __init__(self, samples: Sequence[Sample], priors: Mapping[str, Prior]) -> None:
        self.samples, self.priors = list(samples), dict(priors)
        self.sources = tuple(dict.fromkeys(sample.source for sample in samples))
        self._source = np.concatenate([[sample.source] * len(sample.groups) for sample in samples])
        groups = [[f"{sample.source}/{name}" for name in sample.groups] for sample in samples]
        self._group = np.concatenate(groups)
        self._measured = np.log(np.concatenate([sample.measured for sample in samples]))
        self._side = np.concatenate([sample.side for sample in samples])
        self._slopes: dict[tuple[float, ...], FloatArray] = {}

    def rows_of(self, source: str) -> FloatArray:
        """Return the mask of a source's rows with a figure."""
        rows: FloatArray = (self._source == source) & (self._side == 0)
        return rows

    def errors(self, values: Mapping[str, float]) -> FloatArray:
        """Return the logarithm of estimate over measurement of every row."""
        off: FloatArray = self._estimates(values) - self._measured
        return off

    def error_of(self, source: str, values: Mapping[str, float]) -> float | None:
        """Return the median relative error of a source's rows with a figure."""
        rows = self.rows_of(source)
        return float(np.median(abs(np.expm1(self.errors(values)[rows])))) if rows.any() else None

    def wrong_side(self, source: str, values: Mapping[str, float]) -> tuple[int, int]:
        """Return how many of a source's fits-or-not rows the model puts on the wrong side, and how many there are."""
        rows = (self._source == source) & (self._side != 0)
        return int((self._side[rows] * self.errors(values)[rows] < 0).sum()), int(rows.sum())

    def rows_behind(self, name: str, values: Mapping[str, float]) -> int:
        """Return the number of rows with a figure that change by more than 1% when a constant doubles."""
        moved = abs(self._jacobian(self._logs(values))[:, list(self.priors).index(name)]) * np.log(2) > 0.01
        return int((moved & (self._side == 0)).sum())

    def fit(self, start: Mapping[str, float] | None = None) -> Fit:
        """Return the most likely constants given all rows, searched from a start."""
        first = start or {name: prior.value for name, prior in self.priors.items()}
        return self._fit(self._logs(first), np.ones(len(self._source), dtype=bool), self._off, self._jacobian)

    def fit_without(self, source: str, whole: Fit) -> Fit:
        """Return the most likely constants given the other sources, linearized at the fit to all sources."""
        centre = self._logs(whole.values)
        base, slopes = self._off(centre), self._jacobian(centre)
        return self._fit(
            centre, self._source != source, lambda place: base + slopes @ (place - centre), lambda _place: slopes
        )

    def _fit(
        self,
        place: FloatArray,
        used: Any,
        off_at: Callable[[FloatArray], FloatArray],
        slopes_at: Callable[[FloatArray], FloatArray],
    ) -> Fit:
        off, widths = off_at(place), np.array([prior.deviation for prior in self.priors.values()])
        centres = np.log([prior.value for prior in self.priors.values()])
        effects, effect_widths = self._effects(used)
        counts = np.array([np.count_nonzero((self._source == name) & used) for name in self._source])
        counted = np.where(used, np.minimum(1.0, MAX_ROWS / np.maximum(1, counts)), 0.0)

        def cost(place: FloatArray, shared: FloatArray, off: FloatArray) -> float:
            rows = counted * _cost((off + effects @ shared) / NOISE * self._counts(off))
            prior = ((place - centres) / widths) ** 2
            return float(rows.sum() + 0.5 * prior.sum() + _cost(shared / effect_widths).sum())

        shared = np.zeros(effects.shape[1])
        best = cost(place, shared, off)
        covariance = np.diag(widths**2)
        for _ in range(STEPS):
            left = off + effects @ shared
            weights = counted * self._counts(off) * _pull(left / NOISE) / NOISE**2
            slopes = np.hstack([slopes_at(place), effects])
            spread = np.concatenate([widths, effect_widths / np.sqrt(_pull(shared / effect_widths))])
            curvature = slopes.T @ (weights[:, None] * slopes) + np.diag(1 / spread**2)
            here = np.concatenate([place - centres, shared])
            downhill = slopes.T @ (weights * left) + here / spread**2
            covariance = np.linalg.inv(curvature)
            move = -covariance @ downhill
            length, moved = 1.0, best
            while length > 1 / 64:
                there = self._bounded(place + length * move[: len(place)])
                new = shared + length * move[len(place) :]
                off_there = off_at(there)
                moved = cost(there, new, off_there)
                if moved < best:
                    place, shared, off = there, new, off_there
                    break
                length /= 2
            done = best - moved < CLOSE * best
            best = min(best, moved)
            if done:
                break
        deviations = np.sqrt(np.diag(covariance))
        return Fit(
            values=self._values(place),
            deviations={name: float(deviations[index]) for index, name in enumerate(self.priors)},
            cost=best,
        )

    def _counts(self, off: FloatArray) -> FloatArray:
        """Return 1 for each row with a figure or on the wrong side of the card's memory, otherwise 0."""
        return np.where((self._side == 0) | (self._side * off < 0), 1.0, 0.0)

    def _effects(self, used: Any) -> tuple[FloatArray, FloatArray]:
        """Return the design matrix of the effects (rows by effects), and the deviation of each effect."""
        figures = used & (self._side == 0)
        columns, widths = [np.zeros((len(figures), 0))], []
        for names, width in ((self._source, SOURCE_DEVIATION), (self._group, GROUP_DEVIATION)):
            for name in dict.fromkeys(names[figures]):
                columns.append(((names == name) & figures)[:, None])
                widths.append(width)
        return -np.hstack(columns), np.array(widths, dtype=np.float64)

    def _jacobian(self, place: FloatArray) -> FloatArray:
        """Return the derivative of each estimate's logarithm by each constant's logarithm."""
        key = tuple(place)
        if key not in self._slopes:
            base, slopes = self._off(place), []
            for index in range(len(place)):
                moved = place.copy()
                moved[index] -= STEP
                slopes.append((base - self._off(moved)) / STEP)
            self._slopes[key] = np.stack(slopes, axis=1)
        return self._slopes[key]

    def _off(self, place: FloatArray) -> FloatArray:
        return self.errors(self._values(place))

    def _logs(self, values: Mapping[str, float]) -> FloatArray:
        return np.log([values[name] for name in self.priors])

    def _values(self, place: FloatArray) -> dict[str, float]:
        return {name: float(np.exp(value)) for name, value in zip(self.priors, place, strict=True)}

    def _bounded(self, place: FloatArray) -> FloatArray:
        bounded: FloatArray = np.minimum(place, np.log([prior.most for prior in self.priors.values()]))
        return bounded

    def _estimates(self, values: Mapping[str, float]) -> FloatArray:
        with constants_set(values):
            estimates: FloatArray = np.log(np.concatenate([sample.estimate(sample.block) for sample in self.samples]))
        return estimates


@contextmanager
def constants_set(values: Mapping[str, float]) -> Iterator[None]:
    """Set constants to other values in every module of the cost model that imports them, until the context exits."""
    changed: dict[str, Any] = {}
    for path, value in values.items():
        name, _, inner = path.partition(".")
        changed[name] = _replaced(changed.get(name, getattr(constants, name)), inner.split(".") if inner else [], value)
    places = [
        (module, name)
        for module in _modules()
        for name in changed
        if vars(module).get(name) is getattr(constants, name)
    ]
    before = [(module, name, getattr(module, name)) for module, name in places]
    try:
        for module, name in places:
            setattr(module, name, changed[name])
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def value_of(path: str) -> float:
    """Return the package's value of a constant, or of one element of it."""
    name, _, inner = path.partition(".")
    value = getattr(constants, name)
    for part in inner.split(".") if inner else []:
        value = value[part] if isinstance(value, dict) else value[int(part)]
    return float(value)


def _cost(size: FloatArray) -> FloatArray:
    """Return the negative log-likelihood of deviations under Student's t-distribution."""
    cost: FloatArray = (FREEDOM + 1) / 2 * np.log1p(size**2 / FREEDOM)
    return cost


def _pull(size: FloatArray) -> FloatArray:
    """Return the weight of each deviation in the least squares that approximate `_cost`."""
    pull: FloatArray = (FREEDOM + 1) / (FREEDOM + size**2)
    return pull


def _modules() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("tuner.costmodel") and module]


def _replaced(whole: Any, path: Sequence[str], value: float) -> Any:
    if not path:
        return value
    first, *rest = path
    if isinstance(whole, dict):
        return whole | {first: _replaced(whole[first], rest, value)}
    return tuple(_replaced(each, rest, value) if index == int(first) else each for index, each in enumerate(whole))
