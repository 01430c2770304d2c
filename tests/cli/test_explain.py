"""`tuner explain` shows the verdict, the estimate, and the rules that fail or advise."""

from __future__ import annotations

import json
import re

from tests.conftest import Run


def test_explain_names_broken_rules_and_their_remedies(run: Run) -> None:
    said = run("explain", "tp8-pp5-mbs2-z1")
    assert said.code == 0
    assert "tp8-pp5-dp9-mbs2-z1: not legal" in said.out
    sentence = "tp(8) x pp(5) = 40 does not divide 384 GPUs; with tp=8, pp may be 1, 2, 3, 4, 6, 8, 12, 16, 24 or 48"
    assert sentence in said.out
    assert "nearest legal: tp8-pp6-dp8-mbs2-z1  (pp 5 -> 6, dp 9 -> 8)" in said.out


def test_explain_has_a_stable_json_schema(run: Run) -> None:
    document = json.loads(run("explain", "tp8-pp12-dp4-mbs2-z2", "--json").out)
    assert document["schema"] == "tuner/explain/1"
    assert document["legal"] is False
    broken = [verdict for verdict in document["verdicts"] if verdict["verdict"] == "broken"]
    laws = [verdict for verdict in broken if verdict["level"] == "law"]
    assert [verdict["rule"] for verdict in laws] == ["zero-without-pipeline"]
    assert laws[0]["nearest"] == document["nearest"][0]["key"] == "tp8-pp12-dp4-mbs2-z1"
    assert document["nearest"][0]["changes"] == {"zero": [2, 1]}


def test_explain_gives_advice_on_a_legal_topology(run: Run) -> None:
    said = run("explain", "tp8-pp12-dp4-mbs2-z1")
    assert "tp8-pp12-dp4-mbs2-z1: legal on 48 nodes" in said.out
    assert "! advice  uneven-stages: the output layer is as much work as 1.42 layers" in said.out
    assert "nearest legal" not in said.out


def test_verdict_and_estimate_precede_the_rules(run: Run) -> None:
    printed = run("explain", "tp8-pp12-dp4-mbs2-z2").out
    order = [
        printed.index(text)
        for text in ("not legal", "estimate if it were legal: ", "memory: ", "x law ", "! advice", "Time per")
    ]
    assert order == sorted(order)
    assert "\n. " not in printed
    assert "not applicable" not in printed


def test_rules_that_hold_are_listed_on_request(run: Run) -> None:
    few, every = (run("explain", "tp8-pp12-dp4-mbs2-z1", *more).out for more in ((), ("--rules",)))
    holding = sum(line.startswith(". ") for line in every.splitlines())
    assert f"{holding} rules hold and " in few
    assert "list them with --rules" in few
    assert "list them with" not in every


def test_a_legal_topology_outside_the_search_space_is_reported(run: Run) -> None:
    said = run("explain", "tp8-pp12-dp4-mbs2-z1", "--set", "tp=4", "--set", "dp=8")
    assert "tp8-pp12-dp4-mbs2-z1: legal, but not searched, on 48 nodes" in said.out
    assert "x space   tp is not among the values searched: 4\n" in said.out
    assert "x space   dp is not among the values searched: 8\n" in said.out
    document = json.loads(run("explain", "tp8-pp12-dp4-mbs2-z1", "--set", "tp=4", "--json").out)
    assert (document["legal"], document["in_space"], document["outside"]) == (True, False, {"tp": [4]})
    assert document["nearest"][0]["topology"]["tp"] == 4


def test_a_key_without_dp_follows_the_given_nodes_or_dp(run: Run) -> None:
    assert "tp8-pp3-dp8-mbs2-z1: legal on 24 nodes" in run("explain", "tp8-pp3-mbs2-z1", "--set", "nodes=24").out
    assert "tp8-pp3-dp8-mbs2-z1: legal on 24 nodes" in run("explain", "tp8-pp3-mbs2-z1", "--set", "dp=8").out


def test_explain_states_the_violation_of_a_disabled_policy(run: Run) -> None:
    arguments = ("explain", "tp8-pp6-dp8-mbs6-z1", "--global-batch", "2016", "--allow", "micro-batch-power-of-two")
    said = run(*arguments)
    assert "- policy  micro-batch-power-of-two: disabled; micro_batch=6 is not a power of two\n" in said.out


def test_a_huge_batch_is_explained_quickly(run: Run) -> None:
    said = run("explain", "tp8-pp12-dp4-mbs3-z1", "--global-batch", "99999999")
    assert said.code == 0
    assert "global_batch may be " in said.out


def test_tflops_of_1000_and_more_have_a_thousands_separator(run: Run) -> None:
    options = ("--model", "llama-3-8b", "--gpu", "B300-270GB", "--nodes", "2", "--precision", "fp4")
    row = run("plan", *options, "--top", "1", "--set", "tp=1", "--set", "pp=1").out.splitlines()[-3]
    assert re.search(r" [2-9],[0-9]{3}\.[0-9] ", row)
    explained = run("explain", row.split()[0], *options).out
    assert re.search(r"[2-9],[0-9]{3}\.[0-9] TFLOPs per GPU", explained)
    assert " 2,250.0 " in run("catalog", "gpus").out


def test_memory_of_thousands_of_gib_has_separators(run: Run) -> None:
    out = run("explain", "tp1-pp1-dp8-mbs1-z0", "--model", "llama-3-70b", "--nodes", "1", "--gpu", "H100-80GB-SXM").out
    figures = re.findall(r"([0-9.,]+)(?= of [0-9.]+ GiB usable| GiB$)", out, re.MULTILINE)
    assert len(figures) > 1
    assert all(re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})*\.[0-9]", figure) for figure in figures)
    assert any("," in figure for figure in figures)
