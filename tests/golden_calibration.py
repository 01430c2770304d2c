"""The golden figures of a calibration on six measured topologies: factors, residuals and predictions.

`python -m tests.golden_calibration` rewrites `tests/data/golden/calibration.json`; review the change as a diff.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.mixtures import QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.costmodel.calibration import MeasuredRows, calibrate
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory import shown_bytes, worst_need
from tuner.costmodel.memory_calibration import MeasuredMemory
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import seconds
from tuner.space.build import space_for

GOLDEN: Final = Path(__file__).parent / "data" / "golden" / "calibration.json"

MEASURED: Final = (
    ("tp8-pp12-dp4-mbs2-z1", 0.9, "a"),
    ("tp4-pp12-dp8-mbs1-z1", 1.1, "a"),
    ("tp8-pp6-dp8-mbs2-z1-rnone", 1.25, "b"),
    ("tp2-pp24-dp8-mbs1-z1-vpp3", 0.85, "b"),
    ("tp8-pp12-dp4-mbs4-z1", 0.97, "a"),
    ("tp4-pp24-dp4-mbs2-z1-sp", 4.0, ""),
    ("tp8-pp12-dp4-mbs2-z1", 0.93, "a"),
)
"""Topologies of the default study (the first one twice) with measured seconds over estimate, and speed period."""
OF_MEMORY: Final = (1.12, np.nan, np.nan, 0.93, np.nan, 1.05, np.nan)
"""Their measured memory over the estimate, NaN without a figure; the third one ran out of memory."""
PREDICTED: Final = (
    "tp8-pp12-dp4-mbs2-z1",
    "tp8-pp12-dp4-mbs2-z1-rsel",
    "tp4-pp24-dp4-mbs1-z1-rnone",
    "tp2-pp12-dp16-mbs4-z1",
)
OF_EXPERTS: Final = ("tp1-pp2-dp16-mbs1-z1-rnone-ep8", "tp2-pp1-dp16-mbs1-z1-sp-rsel-ep16-allgather")


def columns(keys: Sequence[str], **described: Any) -> Columns:
    """Return topologies of a study as columns."""
    space = space_for(framework="any", **described)
    topologies = [parse_key(key, workload=space.workload, cluster=space.cluster) for key in keys]
    return Columns.of(topologies, space.workload, space.cluster)


def figures() -> dict[str, Any]:
    """Return the parameters of the calibration and its predictions."""
    keys, factors, periods = zip(*MEASURED, strict=True)
    measured = columns(keys)
    mixed = columns(OF_EXPERTS, model=QWEN3_30B, gpu="H100-80GB-SXM", nodes=4, global_batch=512)
    rows = [
        MeasuredRows(columns=measured, seconds=seconds(measured, SiteFactors()) * factors, period=periods),
        MeasuredRows(columns=mixed, seconds=seconds(mixed, SiteFactors()) * [1.3, 0.95], period=("a", "")),
    ]
    failed = np.array([number == 2 for number in range(len(MEASURED))])
    memory = MeasuredMemory(
        columns=measured,
        memory=shown_bytes(measured, SiteFactors(), "reserved", "first") * OF_MEMORY,
        kind="reserved",
        fitted=~failed,
        failed=failed,
    )
    known = calibrate(rows, [memory])
    found: dict[str, Any] = {
        "site": asdict(known.site),
        "spread": np.diag(known.spread),
        "residual": known.residual,
        "noise": known.noise,
        "memory deviation": known.memory_deviation,
        "weighed": known.weighed,
    }
    for period in ("a", "b", "c"):
        for name, rows_of in (("dense", columns(PREDICTED * 2)), ("experts", mixed)):
            scores = CostModel(calibration=known).score(rows_of, period)
            found[f"{name} in {period}"] = {
                "seconds": scores.seconds,
                "low": scores.interval[0],
                "high": scores.interval[1],
                "memory": scores.memory,
                "need": worst_need(rows_of, known.site).total,
                "out of memory": scores.out_of_memory,
                "MFU": scores.mfu,
                "FLOP/s": scores.flops,
                "training": scores.training,
            }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=lambda value: value.tolist()))
    return plain


def main() -> None:
    """Write the golden file."""
    GOLDEN.write_text(json.dumps(figures(), indent=1) + "\n")


if __name__ == "__main__":
    main()
