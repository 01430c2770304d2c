"""The formats of a framework export the topologies that a plan ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.export.test_export import SITE, any_run
from tuner.core.domain import Framework
from tuner.core.frameworks import FRAMEWORKS, record_of
from tuner.export.bundle import FORMATS, bundle
from tuner.export.formats import ExportOptions
from tuner.planning.plan import plan
from tuner.space.build import space_for

STUDIES: dict[str, dict[str, Any]] = {
    "bloom": {},
    "llama": {"model": "tests/data/huggingface/llama-3.1-8b.json", "gpu": "H100-80GB-SXM", "nodes": 8},
}


LACKS_THE_MODEL = {("bloom", "torchtitan"), ("llama", "megatron-deepspeed")}
"""Frameworks that refuse every topology, because they lack a property of the model."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("study", STUDIES)
def test_no_row_of_a_plan_is_refused_for_its_topology(study: str, framework: Framework) -> None:
    precision: Any = {"precision": "bf16"} if framework == "torchtitan" else {}  # without fp16
    space = space_for(framework=framework, **{"global_batch": 512, **STUDIES[study], **precision})
    record = record_of(space.workload)
    assert record is not None
    runs = [any_run(space.workload, space.cluster, row.topology) for row in plan(space, top=100).top]
    options = ExportOptions(site=SITE)
    for name in record.formats:
        reasons = {tuple(FORMATS[name].refusals(run, options)) for run in runs}
        if (study, framework) in LACKS_THE_MODEL:
            assert () not in reasons, name
        else:
            assert reasons == {()}, name
            assert "topology.json" in bundle(runs[0], name, options)
