"""Least squares with priors: which constants explain the rows of several sources best.

    log measured = log model(constants) + effect of the source + effect of the group + noise

Constants have priors (their logarithms, normal around first principles), and so have effects, which take up what all
rows of a source or of a group share: a slow cluster moves its own effect before it moves a constant. Noise and effects
are Student's, so that what is far off counts little. A row that ran out of memory, or that ran, counts where the model
has it on the wrong side of the card.
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
"""Standard deviation of the logarithm of a row, beside what its source and its group share."""
SOURCE_DEVIATION: Final = 0.08
GROUP_DEVIATION: Final = 0.06
"""Of the effects of sources and of groups."""
FREEDOM: Final = 4.0
"""Degrees of freedom of Student's distribution of rows and effects: the farther one is off, the less it counts."""
MOST_ROWS: Final = 20.0
"""Rows that a source counts as at most: its rows repeat each other's faults."""
STEP: Final = 0.01
"""Change of a logarithm over which slopes are taken."""
STEPS: Final = 20
CLOSE: Final = 1e-3
"""Change of the cost, relative, at which a fit ends."""
SITE: Final = SiteFactors()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Rows of one source that differ only in their columns, and what is estimated of them."""

    source: str
    block: RowBlock
    groups: tuple[str, ...]
    measured: FloatArray
    """Seconds or bytes; of rows without a figure, the card's memory."""
    side: FloatArray
    """0 where `measured` is a figure, 1 where the truth is at least that much, -1 where it is at most that much."""
    estimate: Callable[[RowBlock], FloatArray]


def time_samples(source: str, rows: Sequence[Row]) -> list[Sample]:
    """Return the timed rows of a source."""
    return [
        _sample(source, block, [row.seconds for row in block.rows], lambda block: seconds(block.columns, SITE))
        for block in blocks(rows)
    ]


def memory_samples(source: str, rows: Sequence[Row]) -> list[Sample]:
    """Return the rows of a source with a figure of memory, those out of memory, and those that are said to fit."""
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
    """What a fit found."""

    values: dict[str, float]
    deviations: dict[str, float]
    """Of the logarithms."""
    cost: float


class Problem:
    """The samples of some sources, and the constants to be fitted to them."""

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
        """Return which rows with a figure are of a source."""
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
        """Return how many of a source's rows have the model on the wrong side of the card, and of how many."""
        rows = (self._source == source) & (self._side != 0)
        return int((self._side[rows] * self.errors(values)[rows] < 0).sum()), int(rows.sum())

    def rows_behind(self, name: str, values: Mapping[str, float]) -> int:
        """Return the number of rows with a figure that a constant moves: by 1% or more where it is twice as large."""
        moved = abs(self._jacobian(self._logs(values))[:, list(self.priors).index(name)]) * np.log(2) > 0.01
        return int((moved & (self._side == 0)).sum())

    def fit(self, start: Mapping[str, float] | None = None) -> Fit:
        """Return the likeliest constants near a start, of all rows."""
        first = start or {name: prior.value for name, prior in self.priors.items()}
        return self._fit(self._logs(first), np.ones(len(self._source), dtype=bool), self._off, self._jacobian)

    def fit_without(self, source: str, whole: Fit) -> Fit:
        """Return the likeliest constants of the other sources' rows, by the slopes at the fit to all."""
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
        counted = np.where(used, np.minimum(1.0, MOST_ROWS / np.maximum(1, counts)), 0.0)

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
        """Return 1 for each figure, and for each row without one that the model has on the wrong side."""
        return np.where((self._side == 0) | (self._side * off < 0), 1.0, 0.0)

    def _effects(self, used: Any) -> tuple[FloatArray, FloatArray]:
        """Return which effects each row with a figure has, and the deviation of each effect."""
        figures = used & (self._side == 0)
        columns, widths = [np.zeros((len(figures), 0))], []
        for names, width in ((self._source, SOURCE_DEVIATION), (self._group, GROUP_DEVIATION)):
            for name in dict.fromkeys(names[figures]):
                columns.append(((names == name) & figures)[:, None])
                widths.append(width)
        return -np.hstack(columns), np.array(widths, dtype=np.float64)

    def _jacobian(self, place: FloatArray) -> FloatArray:
        """Return how the logarithm of each estimate moves with the logarithm of each constant."""
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
    """Give constants other values, in every module of the cost model that imports them."""
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
    """Return the package's value of a constant, or of an element of one."""
    name, _, inner = path.partition(".")
    value = getattr(constants, name)
    for part in inner.split(".") if inner else []:
        value = value[part] if isinstance(value, dict) else value[int(part)]
    return float(value)


def _cost(size: FloatArray) -> FloatArray:
    """Return Student's negative logarithm of probability of deviations."""
    cost: FloatArray = (FREEDOM + 1) / 2 * np.log1p(size**2 / FREEDOM)
    return cost


def _pull(size: FloatArray) -> FloatArray:
    """Return the weight of a deviation in the squares that stand for `_cost`."""
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
