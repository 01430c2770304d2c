"""The options that describe a model, a cluster and a search space, the same for every command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from tuner.cli import completion

if TYPE_CHECKING:
    from tuner.space.space import Space

Command = Callable[..., Any]


class FilePath(click.ParamType[str]):
    """The path of a file, which is not empty."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path, or fail with a usage error."""
        if not str(value).strip():
            instead = "" if param is not None and param.required else " or leave out the option"
            self.fail(f"an empty path names no {self.name}; give a {self.name}{instead}.", param=param, ctx=ctx)
        return str(value)


class FolderPath(FilePath):
    """The path of a folder, which is not empty."""

    name = "folder"


class FileOrFolderPath(FilePath):
    """The path of a file or a folder, which is not empty."""

    name = "file or folder"


class StorageUrl(click.ParamType[str]):
    """The URL of an Optuna storage, which is not empty."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the URL, or fail with a usage error."""
        if not str(value).strip():
            self.fail(f"{value!r} is not a URL such as sqlite:///study.db or postgresql://host/name.", param, ctx)
        return str(value)


takes_step_pattern: Final = click.option(
    "--step-pattern",
    metavar="REGEX",
    help="Pattern for the log lines of an unknown trainer, with named groups iteration, seconds or ms, tokens_per_sec, "
    "loss, memory (GiB).",
)

takes_trainer: Final = click.option(
    "--trainer",
    metavar="NAME",
    help="Append each topology's flags to --command instead of filling in fields: megatron-lm, megatron-deepspeed, "
    "nemo, torchtitan, hf or accelerate. Model, batch and training length are read from the "
    "command where it states them; evaluation and checkpoints are disabled.",
)

takes_log: Final = click.option(
    "--log",
    type=FilePath(),
    metavar="FILE",
    help="Log file that --command writes; may use fields: 'logs/{key}/rank0.log'.",
)

takes_site_profile: Final = click.option(
    "--site-profile",
    "--slurm-site",
    "site_profile",
    type=FilePath(),
    metavar="FILE",
    help="TOML file with your site's Slurm settings: account, partition, time limit. [default: none]",
)

OPTIMIZER: Final = click.Choice(["adam", "adam-bf16", "adam8bit", "adafactor", "sgd", "muon"])

LARGEST_NUMBER: Final = 1e30
"""Numbers from here on are refused: no training comes near, and products of a few such numbers stay finite."""

SMALLEST_NUMBER: Final = 1e-30
"""Positive numbers below are refused, so that quotients stay finite too."""


class Positive(click.ParamType[float]):
    """A positive number."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with a usage error."""
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not number > 0:  # also refuses nan
            self.fail(f"{value!r} is not a positive number.", param=param, ctx=ctx)
        if number >= LARGEST_NUMBER:
            self.fail(f"{value!r} is too large; give a number below {LARGEST_NUMBER:g}.", param=param, ctx=ctx)
        if number < SMALLEST_NUMBER:
            self.fail(f"{value!r} is too small; give a number of at least {SMALLEST_NUMBER:g}.", param=param, ctx=ctx)
        return number


class TokenCount(click.ParamType[float]):
    """A number of tokens: `1T`, `366B`, `3.6e12`."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with a usage error."""
        from tuner.core.errors import InputError
        from tuner.core.quantity import parse_count

        try:
            return parse_count(value)
        except InputError as error:
            self.fail(str(error), param=param, ctx=ctx)


ALL: Final = "all"
"""Value of `tuner plan --framework` that compares the frameworks."""


def _framework_option(
    *more: str, usual: str = "from the preset; deepspeed for the bundled worker; else megatron-core"
) -> Callable[[Command], Command]:
    names = ("megatron-core", "megatron-deepspeed", "deepspeed", "fsdp2", "torchtitan", "any")
    compares = " all compares the frameworks." if more else ""
    return click.option(
        "--framework",
        type=click.Choice([*names, *more]),
        help="Training framework; topologies that it does not support are not searched ('tuner catalog frameworks')."
        f"{compares} [default: {usual}]",
    )


_FRAMEWORK: Final = _framework_option()

_DESCRIBE: Final[tuple[Callable[[Command], Command], ...]] = (
    click.option(
        "--model",
        metavar="NAME|FILE",
        shell_complete=completion.models,
        help="Model preset, TOML file or Hugging Face config.json. [default: bloom-14336x72 with heads searched; tiny "
        "when jobs run on CPUs]",
    ),
    click.option(
        "--cluster",
        metavar="NAME|FILE",
        shell_complete=completion.clusters,
        help="Cluster preset or TOML file. [default: bloom-48]",
    ),
    click.option("--nodes", type=int, metavar="N", help="Maximum number of nodes. [default: from --cluster]"),
    click.option(
        "--gpus-per-node",
        type=int,
        metavar="N",
        help="GPUs in each node. [default: from --cluster; with --gpu alone, 4 for GB200 and GB300, else 8]",
    ),
    click.option(
        "--gpu",
        metavar="NAME|FILE",
        shell_complete=completion.gpus,
        help="GPU of the catalog or TOML file. [default: from --cluster]",
    ),
    click.option(
        "--nvlink-domain",
        type=int,
        metavar="N",
        help="GPUs that share NVLink, 72 in NVL72. [default: from --cluster or --gpu]",
    ),
    click.option("--global-batch", type=int, metavar="N", help="Sequences per optimizer step. [default: 2048]"),
    click.option("--seq", type=int, metavar="N", help="Sequence length in tokens. [default: from the model]"),
    click.option(
        "--precision",
        type=click.Choice(["fp32", "fp16", "bf16", "fp8", "fp4"]),
        help="Training precision. [default: from the preset, else bf16 if the GPU supports it]",
    ),
    click.option(
        "--attention",
        type=click.Choice(["eager", "fused", "flash1", "flash2"]),
        help="Attention kernel. flash2 means the framework's flash attention: FlashAttention-2, or cuDNN with "
        "megatron-core on Hopper and later. "
        "[default: from the preset, else the fastest that the GPU supports]",
    ),
    click.option(
        "--tokens",
        type=TokenCount(),
        metavar="N",
        help="Tokens to train on, such as 1T, 366B or 3.6e12. [default: 20 per parameter]",
    ),
    _FRAMEWORK,
    click.option(
        "--precision-recipe",
        type=click.Choice(["delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"]),
        help="How fp8 or fp4 tensors are scaled. [default: from the framework]",
    ),
    click.option(
        "--fp8-weights",
        is_flag=True,
        help="Store layer weights in fp8 rather than keeping fp8 copies of 16-bit weights. Requires ZeRO 1.",
    ),
    click.option(
        "--optimizer",
        type=OPTIMIZER,
        help="Training optimizer; adam-bf16 keeps its moments in bf16. [default: adam]",
    ),
    click.option(
        "--bf16-layers",
        metavar="FIRST,LAST",
        help="Number of first and last layers to keep in bf16 when training in fp8 or fp4, such as 0,4. [default: 0,0]",
    ),
    click.option(
        "--routing",
        type=click.Choice(["balanced", "round-robin", "natural"]),
        help="How tokens are distributed over experts. balanced: evenly, as in benchmarks; round-robin: evenly, and "
        "each token to consecutive experts, as torchtitan and NeMo AutoModel force it; natural: unevenly, as a trained "
        "router does. [default: balanced]",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="AXIS=VALUES",
        shell_complete=completion.axes,
        help="Pin or widen a search axis: tp=8, micro_batch=1,2,4, nodes=40-48, recompute=full, "
        "shape=14336x72,13824x78. Repeatable.",
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="POLICY",
        shell_complete=completion.policies,
        help="Disable a policy; 'tuner rules' lists them. Repeatable.",
    ),
    click.option(
        "--ramp",
        metavar="START,INCREMENT",
        help="Batch-size ramp-up; replaces the policies that approximate it.",
    ),
    click.option("--exact-nodes", is_flag=True, help="Use exactly --nodes nodes instead of at most that many."),
)

_NAMES: Final = (
    *("model", "cluster", "nodes", "gpus_per_node", "gpu", "nvlink_domain", "global_batch", "seq", "precision"),
    *("attention", "tokens", "framework", "precision_recipe", "fp8_weights", "bf16_layers", "optimizer"),
    *("routing", "settings"),
    *("allow", "ramp", "exact_nodes"),
)
"""The arguments that these options fill."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
as_csv = click.option("--csv", "as_csv", is_flag=True, help="Print CSV on stdout.")


def describes_a_space(command: Command) -> Command:
    """Add the options that describe a space to a command; it receives the resulting `space`."""

    @functools.wraps(command)
    def with_space(**given: Any) -> Any:
        space = described_space(given)
        return command(space=space, **{name: value for name, value in given.items() if name not in _NAMES})

    return takes_description(with_space)


def takes_description(command: Command) -> Command:
    """Add the options that describe a space to a command; it receives them as arguments of `space_for`."""
    return _described(command, _FRAMEWORK)


def takes_description_of_layers(command: Command) -> Command:
    """Add the same options, but without a default framework: `--stack` selects the layers."""
    return _described(command, _framework_option(usual="none; --stack selects the layers"))


def takes_description_of_log(command: Command) -> Command:
    """Add the same options, whose default framework is the one that the log names."""
    return _described(command, _framework_option(usual="from the log or the preset; else megatron-core"))


def _described(command: Command, framework: Callable[[Command], Command]) -> Command:
    for option in reversed(_DESCRIBE):
        command = (framework if option is _FRAMEWORK else option)(command)
    return command


def describes_spaces(command: Command) -> Command:
    """Add the options that describe a space, and --framework all, to a command.

    It receives a `space`, or None and the `description` where all frameworks are to be compared.
    """

    @functools.wraps(command)
    def with_spaces(**given: Any) -> Any:
        description = {name: given[name] for name in _NAMES if given.get(name) is not None}
        others = {name: value for name, value in given.items() if name not in _NAMES}
        if description.pop("framework", None) == ALL:
            return command(space=None, description=description, **others)
        return command(space=described_space(given), description={}, **others)

    return _described(with_spaces, _framework_option(ALL))


def described_space(given: dict[str, Any]) -> Space:
    """Return the space that a command's arguments describe; those that are missing keep their defaults."""
    from tuner.space.build import space_for

    return space_for(**{name: given[name] for name in _NAMES if given.get(name) is not None})


calibration_option = click.option(
    "--calibration",
    type=FilePath(),
    metavar="FILE",
    help="Calibration file written by 'tuner calibrate'. [default: none]",
)


def takes_calibration(command: Command) -> Command:
    """Add `--calibration` to a command; it receives the cost `model`, calibrated if a file is given."""

    @functools.wraps(command)
    def with_model(**given: Any) -> Any:
        from tuner.costmodel.site_file import cost_model

        return command(model=cost_model(given.pop("calibration")), **given)

    wrapped: Command = calibration_option(with_model)
    return wrapped
