"""A study continues only with the configuration files of its command as they were."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import tuner
from tuner.core.errors import InputError, OtherStudy, TunerWarning
from tuner.launch.trainers.command import TrainerCommand
from tuner.study.api import study_settings
from tuner.study.setup import open_loop

MEGATRON = (
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 "
    "--global-batch-size 16 --micro-batch-size 1 --bf16 --vocab-size 1024"
)
CONFIG = '{{"zero_optimization": {{"reduce_bucket_size": {}}}}}'
TITAN = "[model]\nflavor='8B'\n[optimizer]\nlr={}\n"


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that starts or continues a study in a working directory."""
    monkeypatch.chdir(tmp_path)

    def open_study(command: str, trainer: str | None, **given: Any) -> None:
        found = study_settings(
            launcher="local",
            command=command,
            trainer=trainer,
            nodes=1,
            gpus_per_node=2,
            budget=1,
            study="s",
            runs=tmp_path / "runs",
            **given,
        )
        with open_loop(found):
            pass

    return open_study


@pytest.mark.parametrize(
    ("trainer", "file", "first", "second", "command"),
    [
        ("megatron-lm", "args.txt", f"{MEGATRON} --lr 1", f"{MEGATRON} --lr 2", "python t.py @args.txt"),
        ("hf", "ds.json", CONFIG.format(1), CONFIG.format(2), "python t.py --deepspeed ds.json"),
        ("torchtitan", "job.toml", TITAN.format(1), TITAN.format(2), "train.py --job.config_file job.toml"),
    ],
)
def test_a_digest_is_that_of_a_files_content(
    trainer: str, file: str, first: str, second: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty lines are no content."""
    monkeypatch.chdir(tmp_path)
    found = []
    for text in (first, second, f"\n{first}\n"):
        (tmp_path / file).write_text(text)
        found.append(TrainerCommand.parse(trainer, command).digests)
    assert [list(digests) for digests in found] == [[file]] * 3
    assert found[0] == found[2] != found[1]


def test_a_changed_file_of_a_trainers_command_is_refused_by_its_name(
    tmp_path: Path, opened: Callable[..., None]
) -> None:
    def with_arguments(text: str) -> None:
        (tmp_path / "args.txt").write_text(text)
        opened("python t.py @args.txt", "megatron-lm")

    with_arguments(MEGATRON)
    with pytest.raises(OtherStudy, match=r"was started with other content of args\.txt: restore it to continue"):
        with_arguments(f"{MEGATRON} --lr 2")
    with_arguments(MEGATRON)


def test_a_study_that_predates_the_digests_continues(tmp_path: Path, opened: Callable[..., None]) -> None:
    (tmp_path / "args.txt").write_text(MEGATRON)
    found = study_settings(
        launcher="local",
        command="python t.py @args.txt",
        trainer="megatron-lm",
        gpus_per_node=2,
        budget=1,
        study="s",
        runs=tmp_path / "runs",
    )
    with open_loop(found) as loop:
        stored = loop.store.settings
        assert len(stored.pop("trainer_files")["args.txt"]) == 16
        loop.store.set_attribute("settings", stored)
    (tmp_path / "args.txt").write_text(f"{MEGATRON} --lr 2")
    opened("python t.py @args.txt", "megatron-lm")


def test_a_command_in_another_directory_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[..., None]
) -> None:
    """Its relative paths name other files there; the directory in which the study was started stays the usual one."""
    given: dict[str, Any] = {"model": "tiny", "global_batch": 8, "settings": ["tp=1", "pp=1"], "framework": "any"}
    command = "python t.py {micro_batch} {zero} {recompute}"
    (tmp_path / "sub").mkdir()
    for directory in (tmp_path, tmp_path / "sub", tmp_path / "sub", tmp_path):
        monkeypatch.chdir(directory)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TunerWarning)
            opened(command, None, **given)
        said = [str(warning.message) for warning in caught if "was started in" in str(warning.message)]
        assert len(said) == (directory != tmp_path)
        for message in said:
            assert f"was started in {tmp_path}, and new jobs run in {directory}: relative paths" in message


def test_stop_needs_no_file_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[..., None]
) -> None:
    """It starts no job, and is usable from any directory."""
    (tmp_path / "args.txt").write_text(MEGATRON)
    opened("python t.py @args.txt", "megatron-lm")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert tuner.stop_study("s", runs="../runs") == []


@pytest.mark.parametrize(
    ("trainer", "command", "content", "sentence"),
    [
        (
            "megatron-lm",
            "@{file}",
            " " * (1 << 20) + "x",
            r"the arguments file '.*' in --command is larger than 1,048,576",
        ),
        ("megatron-lm", "@{file}", "--name 'a", r"the arguments file '.*' in --command is not valid: No closing quot"),
        ("megatron-lm", "@{file}\0", "", r"the arguments file '.* in --command cannot be read: embedded null"),
        ("hf", "--deepspeed {file}", " " * (1 << 20) + "{}", r"the DeepSpeed config '.*' in --command is larger than"),
        ("hf", "--deepspeed {file}", "[" * 200_000, r"the DeepSpeed config '.*' in --command is not JSON: it is nest"),
        (
            "hf",
            "--deepspeed {file}",
            "\udcff",
            r"the DeepSpeed config '.*' in --command cannot be read: it is not UTF-8",
        ),
    ],
)
def test_files_of_a_command_that_cannot_be_read_are_named(
    trainer: str, command: str, content: str, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text(content, errors="surrogateescape")
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse(trainer, f"python x.py {command.format(file=file)}").completed({"model": "tiny"})


@pytest.mark.parametrize(
    ("trainer", "option", "kind"),
    [("megatron-lm", "@", "arguments file"), ("hf", "--deepspeed ", "DeepSpeed config")],
)
def test_a_pipe_is_not_a_file_of_a_command(trainer: str, option: str, kind: str, tmp_path: Path) -> None:
    """Each job would read it again, and one that nothing writes to blocks."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_text, args=("",))
    writer.start()
    try:
        with pytest.raises(InputError, match=f"the {kind} '.*pipe' in --command cannot be read: not a regular file"):
            TrainerCommand.parse(trainer, f"python x.py {option}{pipe}").completed({"model": "tiny"})
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        writer.join()
        os.close(reader)
