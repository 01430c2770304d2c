"""The fields of a command template, and the process that it starts."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.test_local import job
from tests.mixtures import QWEN3_30B
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.launch.program import FIELDS, CommandTemplate, axes_not_passed, fields_of
from tuner.launch.trainers.command import TrainerCommand


def test_every_field_of_a_template_has_a_value_and_is_documented(tmp_path: Path) -> None:
    page = (ROOT / "docs/local.md").read_text()
    assert {*fields_of(job(tmp_path)), "ds_config"} == set(FIELDS)
    for name in FIELDS:
        assert f"`{{{name}}}`" in page, f"docs/local.md does not list {{{name}}}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("train --tp {tpp}", r"unknown field \{tpp\}; the fields are tp, pp"),
        ("train '{tp", "not a valid shell command"),
        ("train {tp", "unbalanced brace"),
        ("train {tp!r}", r"take no format or conversion; write \{tp\} in '"),
        ("train --tp={tp:03d}", r"take no format or conversion; write \{tp\} in '--tp="),
        ("train {tpp:03d}", r"unknown field \{tpp\}"),
        ("train {}", "unknown field"),
        ("train {tp.real}", "unknown field"),
        ("  ", "is empty"),
    ],
)
def test_an_invalid_template_is_refused_in_one_sentence(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=complaint):
        CommandTemplate.parse(text, configure=lambda _: {}, cwd=tmp_path)


@pytest.mark.parametrize(
    "operator", ["&&", "||", "|", "|&", ";", "&", ">", ">>", "<", "<<", "2>", "2>&1", "1>&2", "&>", "&>>"]
)
def test_what_only_a_shell_understands_is_refused(operator: str, tmp_path: Path) -> None:
    """The words around it would be arguments of the first command; quoted, the operator is an argument itself."""
    with pytest.raises(InputError, match=rf"without a shell, which {re.escape(operator)} needs.*bash -c"):
        CommandTemplate.parse(f"cd /x {operator} python t.py", cwd=tmp_path)
    for quoted in (f"'{operator}'", f'"{operator}"', *([rf"\{operator}"] if len(operator) == 1 else [])):
        made = CommandTemplate.parse(f"python t.py {quoted} {{tp}}", cwd=tmp_path)
        assert made.words == ("python", "t.py", operator, "{tp}")
    made = CommandTemplate.parse(f"bash -c 'cd /x {operator} python t.py {{tp}}'", cwd=tmp_path)
    assert made.words[-1] == f"cd /x {operator} python t.py {{tp}}"


@pytest.mark.parametrize(
    "text",
    ["t.py --pattern='a | b && c'", 't.py x"a > b"', "t.py https://a/?b=1&c=2;d", r"t.py a\ \&&b", "t.py it\\'s '&&'"],
)
def test_words_that_contain_a_shells_operators_are_arguments(text: str, tmp_path: Path) -> None:
    assert CommandTemplate.parse(text, cwd=tmp_path).words == tuple(shlex.split(text))


@pytest.mark.parametrize("text", ["OMP_NUM_THREADS=4 python t.py", "A='b c' python t.py"])
def test_a_variable_before_a_command_is_refused(text: str, tmp_path: Path) -> None:
    """After the first word it is an argument, such as an override of Hydra."""
    name = text.partition("=")[0]
    with pytest.raises(InputError, match=rf"without a shell, so {name}=\.\.\. .*write env {name}=\.\.\. before it"):
        CommandTemplate.parse(text, cwd=tmp_path)
    for legal in (f"env {text}", f"python t.py {text}", "'A=b' --flag"):
        assert CommandTemplate.parse(legal, cwd=tmp_path)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ("", ["tp", "zero", "micro_batch", "recompute"]),
        ("--t={tp} --m {microbatches} {{zero}}", ["zero", "recompute"]),
        ("{tp} {ds_config}", ["recompute"]),
        ("{key}", []),
        ("{folder}/out", []),
        ("{number} {nodes}", ["tp", "zero", "micro_batch", "recompute"]),
    ],
)
def test_axes_missing_from_a_template_are_known(fields: str, missing: list[str]) -> None:
    assert axes_not_passed(f"python train.py {fields}", ("tp", "zero", "micro_batch", "recompute")) == missing


def test_a_command_is_split_like_a_shell_but_not_run_by_one(tmp_path: Path) -> None:
    text = "train 'a b' '$HOME' ;rm {{kept}} --tp={tp} {ds_config}"
    one = job(tmp_path)
    one.folder.mkdir()
    start = CommandTemplate.parse(text, configure=lambda _: {"a": 1}, cwd=tmp_path).prepare(one)
    assert start.arguments[:-1] == ("train", "a b", "$HOME", ";rm", "{kept}", "--tp=2")
    assert json.loads(Path(start.arguments[-1]).read_text()) == {"a": 1}


@pytest.mark.parametrize(
    ("trainer", "command", "given", "expected"),
    [
        ("megatron-lm", "python pretrain_gpt.py", None, "1"),
        ("megatron-lm", "python pretrain_gpt.py", "32", "32"),
        ("megatron-deepspeed", "python pretrain_gpt.py", None, "1"),
        ("nemo", "python run_recipe.py --recipe llama3_8b_pretrain_config", None, "1"),
        ("torchtitan", "python -m torchtitan.train --module llama3 --config llama3_8b", None, None),
        (None, "python pretrain_gpt.py --tp {tp}", None, None),
    ],
)
def test_megatrons_jobs_have_the_variable_that_tp_needs(
    trainer: str | None,
    command: str,
    given: str | None,
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before Blackwell, Megatron-LM stops jobs with tp or cp if CUDA_DEVICE_MAX_CONNECTIONS is not 1."""
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", given)
    one = job(tmp_path)
    one.folder.mkdir()
    spec = CommandTemplate.parse(command, cwd=tmp_path, trainer=trainer, configure=lambda _: {}).prepare(one)
    assert spec.environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == expected


def test_the_overlap_of_a_megatron_command_is_searched_and_its_delay_kept_with_it() -> None:
    flags = "--overlap-moe-expert-parallel-comm --delay-wgrad-compute"
    trainer, plain = (
        TrainerCommand.parse("megatron-lm", f"python pretrain_gpt.py {more}") for more in (flags, "--swiglu")
    )
    assert dict(trainer.kind.cautious(trainer.fixed, {})) == {"moe_overlap": "on,off"}
    assert dict(plain.kind.cautious(plain.fixed, {})) == {}
    workload = Workload(model=QWEN3_30B, global_batch=64, precision="bf16", attention="flash2")
    for on in (False, True):
        one = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, ep=8, recompute="none", moe_overlap=on)
        words = trainer.job_flags(workload, one, Path("x"))
        assert [words.count(flag) for flag in flags.split()] == [on, on]


def test_jobs_that_overlap_the_exchange_of_tokens_have_more_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    one = job(tmp_path)
    one.folder.mkdir()
    one = replace(one, topology=replace(one.topology, moe_overlap=True))
    template = CommandTemplate.parse(
        "python pretrain_gpt.py", cwd=tmp_path, trainer="megatron-lm", configure=lambda _: {}
    )
    assert template.prepare(one).environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
