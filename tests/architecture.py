"""The floors and the single owners of the architecture, as a check of the source text.

`violations(package)` reads every module of a package laid out like `tuner/` and returns one sentence for each import
or call that is not its to make.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FLOORS = (
    (
        *("errors", "notebook", "durations", "sizes", "resources", "wholefile"),
        *("domain", "results", "assignment", "huggingface", "catalog", "keys"),
    ),
    ("columns", "rules", "axes", "space", "openings", "nearest", "remedies", "logs"),
    ("physics",),
    ("search", "launch", "tables", "logfiles", "sitefile"),
    ("planning", "explaining", "measuring", "evaluating", "costing", "audit", "request", "export", "budget", "batches"),
    ("tune",),
    ("report",),
    ("cli",),
    ("__main__",),
)
"""Lowest first. On the two lowest floors a module may import those that stand before it; further up, neighbours on a
floor do not know each other."""

ORDERED_FLOORS = 2
APART = "worker"
"""The training program: it imports nothing of ours above the lowest floor."""

OWNERS = {
    "optuna": {"search"},
    "optuna_integration": {"search"},
    "wandb": {"search"},
    "sqlalchemy": {"search"},
    "importlib": {"launch", "__init__"},
    "ctypes": {"launch", "worker"},
    "subprocess": {"launch"},
    "torch": {"worker"},
    "deepspeed": {"worker"},
    "click": {"cli"},
    "rich": {"cli"},
    "tomllib": {"catalog"},
    "tomli": {"catalog"},
    "compression": {"logfiles"},
    "pandas": {"tables"},
    "csv": {"tables", "cli"},
    "matplotlib": {"report"},
    "jinja2": {"export", "launch", "report"},
    "numpy": {name for floor in FLOORS[1:-2] for name in floor},
}
"""Who may import a third-party library, or a module of the standard library that is kept in one place."""

PURE = (
    "rules",
    "columns",
    "axes",
    "space",
    "openings",
    "nearest",
    "remedies",
    "logs",
    "physics",
    "audit",
    "domain",
    "results",
    "sizes",
    "durations",
    "keys",
    "errors",
    "notebook",
)
"""They return: they neither print nor read a clock, a file or the environment."""

IMPURE_MODULES = {"time", "datetime", "random", "os", "io", "pathlib", "logging", "socket", "threading", "secrets"}
_RULES = ("rule", "table", "laws", "policies", "advice", "shapes", "sentences")
NEVER_RAISE = {"physics", *(f"rules/{name}" for name in _RULES)}
BANNED_CALLS = {"eval", "exec", "os.system", "os.popen", "__import__"}
MAY_PRINT = {"cli", "__main__", APART}
"""Who speaks to a terminal; everyone else returns."""


def violations(package: Path) -> list[str]:
    """Everything in the package that the architecture forbids."""
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).with_suffix("").as_posix()
        found += [f"{module}: {complaint}" for complaint in _complaints(module, ast.parse(path.read_text()))]
    return found


def _complaints(module: str, tree: ast.Module) -> Iterator[str]:
    unit = module.split("/")[0]
    if unit not in {name for floor in FLOORS for name in floor} | {APART, "__init__"}:
        yield f"stands on no floor; give {unit} one"
        return
    for imported in _imports(tree):
        parts = imported.split(".")
        if parts[0] == "tuner":
            yield from _against_floors(unit, parts[1] if len(parts) > 1 else "__init__")
        else:
            yield from _against_owners(unit, parts[0])
    yield from _against_purity(module, unit, tree)


def _imports(tree: ast.Module) -> Iterator[str]:
    """Every module that is imported, also inside functions; what only a type checker sees does not count."""
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and isinstance(branch.test, ast.Name) and branch.test.id == "TYPE_CHECKING"
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "tuner.relative-import"
            elif node.module == "tuner":
                yield from (f"tuner.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def _against_floors(unit: str, imported: str) -> Iterator[str]:
    if unit == imported or imported in ("__init__", "__version__"):
        return
    if unit == "__init__":
        yield f"the package itself imports {imported}; it must cost nothing"
        return
    target, own = _floor(imported), _floor(unit)
    if target is None:
        yield f"imports tuner.{imported}, which stands on no floor"
    elif own is None:
        if target > 0:
            yield f"stands apart and imports {imported} of floor {target + 1}"
    elif target > own:
        yield f"floor {own + 1} imports {imported} of floor {target + 1}"
    elif target == own:
        floor = FLOORS[own]
        if own >= ORDERED_FLOORS or floor.index(imported) > floor.index(unit):
            yield f"imports its neighbour {imported}"


def _floor(unit: str) -> int | None:
    return next((level for level, floor in enumerate(FLOORS) if unit in floor), None)


def _against_owners(unit: str, library: str) -> Iterator[str]:
    if library in OWNERS:
        if unit not in OWNERS[library]:
            yield f"imports {library}, which belongs to {' and '.join(sorted(OWNERS[library]))}"
    elif library not in sys.stdlib_module_names:
        yield f"imports {library}, which has no owner"
    elif library == "pickle" or (library == "importlib" and unit != "__init__"):
        yield f"imports {library}"
    elif unit in PURE and library in IMPURE_MODULES:
        yield f"is pure and imports {library}"


def _against_purity(module: str, unit: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and (module in NEVER_RAISE or unit in NEVER_RAISE):
            yield f"raises in line {node.lineno}; rules and estimates return"
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in BANNED_CALLS:
                yield f"calls {name}"
            if name in ("open", "input") and unit in PURE:
                yield f"is pure and calls {name}"
            if unit not in MAY_PRINT and (name == "print" or name.startswith(("sys.stdout", "sys.stderr", "sys.exit"))):
                yield f"calls {name}, which only {' and '.join(sorted(MAY_PRINT))} may"
            if any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords):
                yield f"starts a shell in line {node.lineno}"
