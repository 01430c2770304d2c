"""Shell completion of option values: names of the catalog, studies, formats, rules and topology keys.

Completers run while the shell waits, so they import only what they need; an error completes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]

MAX_KEYS: Final = 1000
"""Topologies of the plan that key completion draws from."""


def completes(names: Callable[[click.Context], Iterable[str]], *, or_file: bool = False) -> Completer:
    """Return a completer of the names that start with what was typed; with `or_file`, of file names if none does."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        del parameter
        items: list[CompletionItem] = []
        with suppress(Exception):  # a shell has no place to show an error
            items = [CompletionItem(name) for name in names(context) if name.startswith(incomplete)]
        return items or ([CompletionItem(incomplete, type="file")] if or_file else [])

    return complete


def _models(_: click.Context) -> list[str]:
    from tuner.core.catalog import catalog

    return catalog().model_names()


def _gpus(_: click.Context) -> list[str]:
    from tuner.core.catalog import catalog

    return sorted(catalog().gpu)


def _clusters(_: click.Context) -> list[str]:
    from tuner.core.catalog import catalog

    return sorted(catalog().cluster)


def _studies(context: click.Context) -> list[str]:
    from pathlib import Path

    runs = Path(context.params.get("runs") or "runs")
    return sorted(path.parent.name for path in runs.glob("*/study.db"))


def _formats(_: click.Context) -> list[str]:
    from tuner.export.bundle import FORMATS

    return list(FORMATS)


def _policies(_: click.Context) -> list[str]:
    from tuner.space.rules import RULES

    return [rule.name for rule in RULES if rule.level == "policy"]


def _axes(_: click.Context) -> list[str]:
    from tuner.space.axes import SETTABLE

    return [f"{axis}=" for axis in SETTABLE]


def _keys(context: click.Context) -> list[str]:
    """Return the keys that `tuner plan` ranks first, for the model and cluster on the command line."""
    from tuner.planning.plan import plan
    from tuner.space.build import SpaceArguments, space_for

    params = context.params
    given: Any = {name: params[name] for name in SpaceArguments.__annotations__ if params.get(name) is not None}
    return [row.topology.key for row in plan(space_for(**given), top=MAX_KEYS).top]


models: Final = completes(_models, or_file=True)
gpus: Final = completes(_gpus, or_file=True)
clusters: Final = completes(_clusters, or_file=True)
studies: Final = completes(_studies)
studies_or_files: Final = completes(_studies, or_file=True)
formats: Final = completes(_formats)
policies: Final = completes(_policies)
axes: Final = completes(_axes)
keys: Final = completes(_keys)
