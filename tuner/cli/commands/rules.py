"""`tuner rules`."""

from __future__ import annotations

import click

from tuner.cli.options import as_json


@click.command(short_help="List the rules for legal topologies.", epilog="Example: tuner rules")
@as_json
def rules(as_json: bool) -> None:
    """List the rules for legal topologies, with their level, condition and source.

    Laws always apply, policies can be disabled with --allow, advice never rejects a topology.
    """
    from tuner.cli.output import print_json, print_table
    from tuner.space.rules import RULES

    if as_json:
        fields = ("name", "level", "sentence", "source")
        print_json("rules", {"rules": [{field: getattr(rule, field) for field in fields} for rule in RULES]})
        return
    headers = ("Rule", "Level", "Condition", "Source")
    print_table(
        headers,
        [(rule.name, rule.level, rule.sentence, rule.source) for rule in RULES],
        left=headers,
        spare=("Source",),
    )
