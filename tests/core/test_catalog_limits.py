"""NVLink domains of described clusters, refused values of a TOML file, and how large it may be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.core.test_catalog import CLUSTER_TOML
from tuner.core import catalog
from tuner.core.errors import InputError


@pytest.mark.parametrize(("domain", "kept"), [(None, None), (8, None), (16, 16), (72, 72)])
def test_an_nvlink_domain_of_one_node_is_none(domain: int | None, kept: int | None) -> None:
    card = catalog.gpu("H100-80GB-SXM")
    made = catalog.make_cluster(name="c", nodes=2, gpus_per_node=8, gpu=card, nvlink_domain=domain)
    assert made.nvlink_domain == kept
    assert made.intra_node.bandwidth == card.intra_node_bandwidth
    assert made.inter_node.bandwidth == card.inter_node_bandwidth * 8
    assert (made.nodes, made.gpus_per_node, made.host_memory, made.fabric) == (2, 8, 0.0, None)
    other = catalog.make_cluster(name="c", nodes=2, gpus_per_node=8, gpu=card, intra=3.0, inter=5.0, host=7.0)
    assert (other.intra_node.bandwidth, other.inter_node.bandwidth, other.host_memory) == (3.0, 5.0, 7.0)
    assert (made.intra_node.latency, made.inter_node.latency) == (other.intra_node.latency, other.inter_node.latency)
    assert made.intra_node.latency < made.inter_node.latency


def test_a_toml_text_has_ten_thousand_tables_and_keys_of_some_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert catalog.MAX_TOML_TABLES == 10_000
    monkeypatch.setattr(catalog, "MAX_TOML_TABLES", 3)
    text = "".join(f"[t{number}]\n" for number in range(3))
    assert catalog.toml_of(text, "x") == {"t0": {}, "t1": {}, "t2": {}}
    deepest = ".".join("a" * (catalog.MAX_TOML_DEPTH + 1))
    assert catalog.toml_of(f"{deepest} = 1", "x")
    for wrong in (f"{text}[more]\n", f"{deepest}.a = 1"):
        with pytest.raises(InputError, match="x is not valid TOML: it has more than 3 tables, or keys of"):
            catalog.toml_of(wrong, "x")


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("nodes", "-4", "lab.toml: cluster 'lab': cluster field nodes must be between 1 and 16,384, not -4."),
        ("sms", "1.5", "lab.toml: gpu 'TestCard-24GB': gpu field sms must be a whole number, not 1.5."),
        ("memory_gib", "-1", "lab.toml: gpu 'TestCard-24GB': memory_gib must be a positive number, not -1."),
    ],
)
def test_a_value_that_is_refused_is_named_with_its_file(
    field: str, value: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab.toml").write_text(re.sub(rf"(?m)^{field} = .*", f"{field} = {value}", CLUSTER_TOML))
    with pytest.raises(InputError) as caught:
        catalog.cluster("lab.toml")
    assert str(caught.value) == complaint
