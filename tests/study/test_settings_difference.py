"""The difference between a study's settings and those that another command asks for."""

from __future__ import annotations

from tuner.study.store.settings_difference import as_options, difference_of


def test_a_command_is_quoted_in_a_difference() -> None:
    difference = difference_of({"command": "python a.py --tp {tp}"}, {"command": "env A=1 python a.py --tp {tp}"})
    assert as_options(difference) == "--command 'python a.py --tp {tp}', not 'env A=1 python a.py --tp {tp}'"
