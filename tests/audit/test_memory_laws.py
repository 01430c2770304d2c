"""Laws of memory across rows: only runs on the same cards are compared."""

from __future__ import annotations

from tuner.audit import audit
from tuner.tables import table_of

HEADER = "gpu,gpus_per_node,nodes,node_gbit_s,layers,hidden,heads,tp,pp,dp,mbs,gbs,mem_gib,sec_per_iter,status\n"


def checks(*rows: str) -> list[str]:
    return [finding.check for finding in audit(table_of(HEADER + "\n".join(rows) + "\n", "t.csv"))]


def test_oom_at_a_smaller_micro_batch_is_doubted_on_the_same_gpus_only() -> None:
    small = "V100-16GB-SXM,8,1,100,24,2048,16,8,1,1,1,512,,,OOM"
    larger = "{},8,1,100,24,2048,16,8,1,1,2,512,15,20,OK"
    assert checks(small, larger.format("V100-16GB-SXM")) == ["oom-fits"]
    assert checks(small, larger.format("V100-32GB-SXM")) == []
