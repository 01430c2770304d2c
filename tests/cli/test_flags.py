"""The flags of every command, on which scripts depend."""

from __future__ import annotations

from tuner.cli import app

SPACE = {
    *("--model", "--cluster", "--nodes", "--gpus-per-node", "--gpu", "--global-batch", "--seq", "--precision"),
    *("--nvlink-domain", "--routing", "--fp8-weights", "--bf16-layers", "--optimizer"),
    *("--attention", "--framework", "--precision-recipe", "--set", "--allow", "--ramp", "--exact-nodes", "--json"),
}
LIMITS = {"--budget", "--node-hours", "--deadline", "--patience", "--tokens", "--jobs"}
KEPT = {"--study", "--runs", "--storage", "--from", "--default", "--calibration", "--seed"}
STUDY = {"--runs", "--storage"}
FLAGS = {
    "audit": {"--fix", "--output", "--default", "--strict", "--json"},
    "calibrate": STUDY | {"--default", "--output", "--period", "--era", "--json"},
    "catalog": {"--json"},
    "compare": SPACE
    | {
        *(
            "--calibration",
            "--table",
            "--default",
            "--step",
            "--most",
            "--margin",
            "--stack",
            "--plot",
            "--export",
            "--tokens",
        )
    },
    "dashboard": STUDY | {"--port", "--no-browser", "--check", "--json"},
    "doctor": SPACE
    | {
        "--measure",
        "--output",
        "--runs",
        "--storage",
        "--json",
        "--command",
        "--step-pattern",
        "--log",
        "--trainer",
        "--tokens",
    },
    "evaluate": STUDY | {"--default", "--calibration", "--calibrate-rows", "--seed", "--rows", "--json"},
    "explain": SPACE | {"--calibration", "--against", "--tokens", "--rules"},
    "export": STUDY
    | {
        *("--output", "--format", "--fork", "--command", "--site-profile", "--slurm-site", "--zero-plus-plus", "--json")
    },
    "flops": SPACE | {"--seconds", "--tokens", "--price"},
    "measure": SPACE | {"--explain", "--step-pattern", "--csv", "--expect", "--iterations", "--run", "--tokens"},
    "list": STUDY | {"--json"},
    "max-batch": SPACE
    | {*("--calibration", "--launcher", "--command", "--table", "--group", "--default", "--strategy", "--step")}
    | {*("--start", "--most", "--increment", "--margin", "--stack", "--limit", "--claim", "--iterations", "--timeout")}
    | {"--runs", "--plot", "--site-profile", "--slurm-site", "--tokens", "--step-pattern"},
    "memory": {
        *("--frozen", "--trainable", "--optimizer", "--precision", "--checkpointing", "--gpu", "--gpus", "--zero"),
        *("--target", "--seq", "--sample", "--overhead", "--multiple", "--decimal", "--claim", "--export", "--json"),
    },
    "optimize": SPACE
    | LIMITS
    | KEPT
    | {
        *(
            "--sampler",
            "--memory-filter",
            "--launcher",
            "--command",
            "--table",
            "--group",
            "--iterations",
            "--drift",
            "--noise",
            "--fidelity",
            "--trial-nodes",
        )
    }
    | {
        *(
            "--keep-going",
            "--step-pattern",
            "--log",
            "--trainer",
            "--retry-hang-sync",
            "--hostfile",
            "--over",
            "--slurm-site",
            "--within-allocation",
            "--track",
        )
    }
    | {"--site-profile"},
    "plan": SPACE | {"--csv", "--top", "--calibration", "--tokens"},
    "recover": {"--runs", "--json"},
    "report": STUDY | {"--output", "--json"},
    "rules": {"--json"},
    "stop": STUDY | {"--json"},
}


def test_the_flags_of_every_command_are_stable() -> None:
    """A flag may be added, but never renamed or removed."""
    found = {
        name: {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        for name, command in app.commands.items()
    }
    assert found == FLAGS
