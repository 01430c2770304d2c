"""Readers of logs compared with closed forms: clocks, agreement of ranks, and signatures."""

from __future__ import annotations

import math

import pytest

from tuner.core.outcomes import Outcome
from tuner.logs import read_log
from tuner.logs.blocks import Blocks
from tuner.logs.dictionaries import Dictionaries
from tuner.logs.lines import untangled
from tuner.logs.ranks import _same_loss, _same_time, merged
from tuner.logs.records import Iteration
from tuner.logs.signatures import SIGNATURES

PROGRAMS = {
    *(
        "Abseil",
        "Apptainer",
        "C++",
        "CUDA",
        "Click",
        "Composer",
        "DeepEP",
        "DeepSpeed",
        "Docker",
        "HF Trainer",
        "Hydra",
        "LSF",
    ),
    *("Hugging Face Hub", "Lightning", "Linux", "MPI", "Megatron-LM", "NCCL", "PBS", "PyTorch", "Python", "Slurm"),
    *("Typer", "UCX", "accelerate", "argparse", "bash", "conda", "containers", "fairseq", "glibc", "jsonargparse"),
    *(
        "Horovod",
        "JAX",
        "Kubernetes",
        "Ray",
        "Rust",
        "SageMaker",
        "Google Cloud",
        "SkyPilot",
        "environment modules",
        "ld.so",
        "nvidia-resiliency-ext",
        "timeout",
    ),
    *(
        "lit-llama",
        "gcc",
        "mpirun",
        "nanoGPT",
        "ninja",
        "nvcc",
        "nvidia-smi",
        "object stores",
        "pdsh",
        "pyxis",
        "requests",
        "sh",
        "srun",
        "ssh",
        "submitit",
    ),
    *("pip", "the CUDA driver", "torchrun", "torchtitan", "tuner's worker", "tyro", "uv", "wandb"),
}


def test_every_signature_has_an_outcome_a_meaning_programs_and_a_remedy() -> None:
    for signature in SIGNATURES:
        assert isinstance(signature.outcome, Outcome), signature.meaning
        assert set(signature.prints.split(", ")) <= PROGRAMS, signature.meaning
        assert signature.meaning, signature.pattern
        assert not {signature.meaning, signature.remedy} & PROGRAMS, signature.meaning
        assert signature.words, signature.meaning
        assert all(isinstance(word, str) for word in signature.words)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(2.5, 2.5, True), (2.5, 2.6, False), (None, 2.5, True), (math.nan, 2.5, True), (math.nan, math.nan, True)],
)
def test_ranks_of_one_run_agree_in_the_loss_unless_one_is_missing(
    one: float | None, other: float | None, same: bool
) -> None:
    first, second = Iteration(number=2, seconds=1.0, loss=one), Iteration(number=2, seconds=1.0, loss=other)
    assert _same_loss(first, second) == _same_loss(second, first) == same


def figures(lines: list[str]) -> list[dict[str, object]]:
    """Return the values of each record that differ from the defaults."""
    blocks = Blocks()
    found = [record for line, text in enumerate(lines, start=1) for record in blocks.read(line, text)]
    usual = Iteration(number=0, seconds=None)
    return [
        {"source": record.source}
        | {
            name: value
            for name in Iteration.__dataclass_fields__
            if (value := getattr(record.iteration, name)) != getattr(usual, name)
        }
        for record in found
    ]


def test_a_block_of_composer_belongs_to_the_batch_of_its_heading() -> None:
    """Batches are numbered across epochs; a last digit of 0.01 at 0.25 batches/s is 0.01 / 0.25^2 seconds."""
    lines = [
        "\t Train loss/train/total: 9.5",
        "[epoch=2][batch=3/10]:",
        "\t Train throughput/batches_per_sec: 0.25",
        "\t Train loss/train/total: 2.25",
        "\t Train lr-DecoupledAdamW/group0: 1.0",
        "\t Train time/train: 0.50",
        "[batch=4]:",
        "\t Train wall_clock/train: 7.5",
    ]
    derived = "batches per second, a mean of the last ones"
    assert figures(lines) == [
        {"source": "composer", "number": 13, "seconds": 4.0, "seconds_digit": 0.16, "derived": derived, "line": 3},
        {"source": "composer", "number": 13, "loss": 2.25, "line": 4},
        {"source": "composer", "number": 13, "clock": 1800.0, "clock_digit": 36.0, "line": 6},
        {"source": "composer", "number": 4, "clock": 7.5, "clock_digit": 0.1, "line": 8},
    ]


def test_a_block_of_olmo_belongs_to_the_step_of_its_heading() -> None:
    lines = [
        "    train/CE loss=9.5",
        "node01 INFO [step=7/100,epoch=1,eta=0:03:20]",
        "    throughput/device/BPS=0.5",
        "    throughput/device/TPS=1,024",
        "    train/CE loss=3.5",
    ]
    assert figures(lines) == [
        {
            "source": "olmo-core",
            "number": 7,
            "seconds": 2.0,
            "seconds_digit": pytest.approx(0.1 / 0.25),
            "derived": "batches per second",
            "line": 3,
        },
        {"source": "olmo-core", "number": 7, "loss": 3.5, "line": 5},
    ]


@pytest.mark.parametrize(("after", "failed"), [(0, True), (1, True), (2, False)])
def test_an_exception_followed_by_two_iterations_was_caught(after: int, failed: bool) -> None:
    line = " iteration {}/ 500 | elapsed time per iteration (ms): 1250.5 | lm loss: 1.5E+00 | "
    caught = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: no such shard"]
    lines = [line.format(1), *caught, *(line.format(2 + number) for number in range(after))]
    (run,) = read_log(lines).runs
    assert len(run.iterations) == 1 + after
    assert (run.failure is not None) == failed


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((2.0, None), (2.0, None), True),
        ((2.0, None), (1.97, None), True),
        ((2.0, None), (1.0, None), False),
        ((2.0, None), (4.0, None), False),
        ((None, 8.0), (None, 8.0), True),
        ((None, 8.0), (None, 9.0), False),
        ((2.0, None), (None, 8.0), False),
    ],
)
def test_ranks_of_one_run_agree_in_time_or_rate(
    one: tuple[float | None, float | None], other: tuple[float | None, float | None], same: bool
) -> None:
    first, second = (Iteration(number=2, seconds=seconds, samples_per_second=rate) for seconds, rate in (one, other))
    assert _same_time(first, second) == _same_time(second, first) == same


def test_merged_ranks_have_the_time_of_the_slowest() -> None:
    """Figures that the slowest rank lacks come from the others; the spread is its time less that of the fastest."""
    fast = Iteration(number=2, seconds=2.0, loss=1.5, tflops=30.0, line=7)
    slow = Iteration(number=2, seconds=2.5, tflops=25.0, line=9)
    found = merged(fast, slow)
    assert found == merged(slow, fast)
    assert (found.seconds, found.tflops, found.loss, found.line) == (2.5, 25.0, 1.5, 7)
    assert found.spread == pytest.approx(0.25)
    slowest = merged(found, Iteration(number=2, seconds=4.0, line=11))
    assert (slowest.seconds, slowest.tflops) == (4.0, 25.0)
    assert slowest.spread == pytest.approx(1.0)


def test_a_list_of_arguments_starts_another_run_if_anything_was_printed_since_the_last_list() -> None:
    """Iterations or a failure count, whatever number the iterations continue with."""
    banner = "------------------------ arguments ------------------------"
    line = " iteration {}/ 500 | elapsed time per iteration (ms): 1250.5 | lm loss: 1.5E+00 | "
    failure = "torch.OutOfMemoryError: CUDA out of memory. Tried to"
    lines = [
        *(banner, "  tensor_model_parallel_size ...... 2", banner, "  seq_length ...... 512"),
        *(line.format(1), line.format(2)),
        *(banner, "  hidden_size ...... 64", line.format(3), failure),
        *(banner, "  num_layers ...... 4", failure),
        *(banner, "  micro_batch_size ...... 8", line.format(4)),
    ]
    runs = read_log(lines).runs
    assert [[one.number for one in run.iterations] for run in runs] == [[1, 2], [3], [], [4]]
    assert [run.failure is not None for run in runs] == [False, True, True, False]
    assert [dict(run.arguments) for run in runs] == [
        {"tensor_model_parallel_size": "2", "seq_length": "512"},
        {"hidden_size": "64"},
        {"num_layers": "4"},
        {"micro_batch_size": "8"},
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("KeyErrorKeyError: : 'a'" + "'a'", "KeyError: 'a'"),
        ("aaErroraaError: : no nono no", "aaError: no no"),
        ("my.FirstErrormy.FirstErrormy.FirstError: : : it brokeit brokeit broke", "my.FirstError: it broke"),
        ("KeyErrorKeyError: : 'a' and 'b'", "KeyErrorKeyError: : 'a' and 'b'"),
        ("KeyErrorValueError: : 'a'" + "'a'", "KeyErrorValueError: : 'a'" + "'a'"),
        ("KeyError: 'a'" + "'a'", "KeyError: 'a'" + "'a'"),
    ],
)
def test_an_exception_that_ranks_print_interleaved_is_untangled(text: str, expected: str) -> None:
    assert untangled(text) == expected


@pytest.mark.parametrize(("length", "joined"), [(1999, True), (2000, False)])
def test_texts_of_up_to_1999_characters_are_untangled(length: int, joined: bool) -> None:
    """`AErrorAError: : ` has 16 characters, and the words follow twice."""
    word = "x" * ((length - 16) // 2)
    text = f"AErrorAError: : {word}{word}".ljust(length, "x")
    assert len(text) == length
    assert (untangled(text) != text) == joined


@pytest.mark.parametrize(
    ("runtime", "rate", "iterations"),
    [("90.0", "0.5", [(45, 2.0)]), ("90.0", "0.01", [(1, 90.0)]), ("90.0", "0.0", []), ("0.0", "0.5", [])],
)
def test_a_summary_covers_runtime_times_rate_iterations(
    runtime: str, rate: str, iterations: list[tuple[int, float]]
) -> None:
    text = f"{{'train_runtime': {runtime}, 'train_samples_per_second': 4.0, 'train_steps_per_second': {rate}, 'x': 1}}"
    found = [record.iteration for record in Dictionaries().read(3, text)]
    assert [(one.number, one.seconds) for one in found] == iterations
    assert all(one.seconds_digit == pytest.approx(0.1 / one.number) for one in found)


def test_a_cause_is_found_in_interleaved_tracebacks() -> None:
    """CPython interleaves them in this way if two ranks share a pipe."""
    lines = ["Traceback (most recent call last):", "Traceback (most recent call last):"]
    lines += ['  File "loop.py", line 1, in <module>'] * 2 + ["        import flash_attnimport flash_attn"]
    lines += ["ModuleNotFoundErrorModuleNotFoundError: : No module named 'flash_attn'No module named 'flash_attn'"]
    (run,) = read_log(lines).runs
    assert run.failure
    assert run.failure.failure.kind == "CRASHED"
    assert run.failure.failure.evidence == "ModuleNotFoundError: No module named 'flash_attn'"
    assert run.failure.meaning == "a dependency is missing"


def test_a_summary_with_an_imprecise_rate_states_its_uncertainty() -> None:
    """20,000 s at 0.003 steps/s are 50 to 70 steps."""
    text = "{'train_runtime': 20000.0, 'train_samples_per_second': 4.0, 'train_steps_per_second': 0.003, 'x': 1}"
    (record,) = Dictionaries().read(3, text)
    assert record.iteration.number == 60
    assert record.iteration.seconds == pytest.approx(20000 / 60)
    assert record.iteration.seconds_digit == pytest.approx(20000 / 60 / 3)
