"""Syntax of a shell in `--command` and `--log` is refused instead of being passed to programs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.core.errors import InputError
from tuner.launch.program import CommandTemplate


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python t.py --out $SCRATCH/x", "$SCRATCH"),
        ('python t.py --out "${SCRATCH}/x"', "${SCRATCH}"),
        ("python t.py --out ${SCRATCH:-/tmp}/x", "${SCRATCH:-/tmp}"),
        ("python t.py --out 'a'$SCRATCH", "$SCRATCH"),
        ("python t.py --seed $(date +%s)", "$(date"),
        ('python t.py --seed "$(date +%s)"', "$(date +%s)"),
        ("python t.py --host `hostname`", "`hostname`"),
        ('python t.py --host "`hostname -s`"', "`hostname -s`"),
        ("~/venv/bin/python t.py", "~"),
        ("python t.py --out ~", "~"),
        ("python t.py --out ~/'my run'", "~"),
        ("""python t.py "it's $HOME" """, "$HOME"),
    ],
)
def test_what_a_shell_would_expand_is_refused(command: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        CommandTemplate.parse(command, cwd=Path())
    assert str(caught.value) == (
        f"--command runs without a shell, which {found} needs: write its value, write bash -c '...', or put it in "
        "single quotes if it is literal."
    )


@pytest.mark.parametrize(
    "command",
    [
        "python t.py --out '$SCRATCH/x' --match '`a`' --home '~/x'",
        r"python t.py --match a$ '^(b|c)$' \$HOME $1 5$ \`x",
        "nemo llm pretrain --factory f ~trainer.x=1 --out=~/x a~ ~user/x x/~/y",
        """bash -c "cd $HOME && python t.py --tp {tp}" """,
        """env A=1 /bin/bash -lc 'echo $(hostname) `x`' """,
        "torchrun --nproc-per-node {gpus} t.py --key {key} --config {ds_config} {{kept}}",
    ],
)
def test_literal_text_is_accepted(command: str) -> None:
    """Single quotes are literal, `$` before no name is, and a shell that the command starts expands its script."""
    assert CommandTemplate.parse(command, cwd=Path()).words


@pytest.mark.parametrize("command", ["python -c $X", 'python bash.py -c "$X"', """bash "$X" -c x"""])
def test_only_the_script_of_a_shell_is_expanded_by_it(command: str) -> None:
    with pytest.raises(InputError, match=r"which \$X needs: write its value"):
        CommandTemplate.parse(command, cwd=Path())


@pytest.mark.parametrize(("log", "found"), [("$SCRATCH/{key}.log", r"\$SCRATCH"), ("~/{key}.log", "~")])
def test_a_log_that_a_shell_would_expand_is_refused(log: str, found: str) -> None:
    with pytest.raises(InputError, match=f"--log is read without a shell, which {found} needs: write its value."):
        CommandTemplate.parse("python t.py", cwd=Path(), log=log)
