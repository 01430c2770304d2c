"""The layers and the library owners of the architecture, checked against the source text.

`violations(package)` reads every module of a package laid out like `tuner/` and returns one sentence per forbidden
import or call. `python -m tests.architecture` prints the layer table that CONTRIBUTING.md contains.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

LAYERS: Final = {
    "__main__": ("the entry point", {"cli"}),
    "step": ("the helper that reports a trainer's iterations", set[str]()),
    "errors": ("the errors that scripts import", {"core"}),
    "cli": ("parse, call the Python API, print", {"report", "export", "study", "sizing", "planning", "audit"}),
    "report": ("tables, plots, HTML", {"study", "sizing"}),
    "export": ("production files", {"study", "sizing"}),
    "study": (
        "one study: setup, loop, scheduler, ranking, drift, watchdog, result; `study/store/` stores it",
        {"search", "planning", "launch", "launch/virtual", "audit"},
    ),
    "sizing": ("memory budgets, max batch, FSDP against TP; runs jobs", {"launch", "costmodel"}),
    "search": ("surrogate, acquisition, samplers, candidates", {"costmodel"}),
    "planning": ("plan, explain, cost of a topology; launches nothing", {"costmodel"}),
    "launch": (
        "launcher contract; `local/`, `slurm/`, `virtual/`, `ds_config`; the only importer of subprocess",
        {"logs", "space"},
    ),
    "launch/virtual": ("simulated cluster and replayed tables", {"launch", "costmodel"}),
    "audit": ("checks of published figures; a log as a measurement", {"costmodel", "logs"}),
    "costmodel": ("time and memory terms, calibration, evaluation", {"space", "tables"}),
    "space": ("axes, rules, enumeration, nearest legal topology, relaxations", {"core"}),
    "logs": ("one reader per framework, failure classification", {"core"}),
    "tables": ("the measurement table", {"core"}),
    "core": ("domain types, catalog, columns, keys, documents, text, errors, atomic writes", set[str]()),
    "worker": ("the training program inside a job; the only place for torch and deepspeed", {"core"}),
}
"""Each package, highest first: its contents, and the packages that it may import together with their imports."""

BACK_ENDS: Final = ("launch/local", "launch/slurm", "launch/virtual")
"""Launcher implementations, none of which may import another."""

OWNERS: Final = {
    "optuna": {"search", "study/store"},
    "optuna_integration": {"study/store"},
    "wandb": {"study/store"},
    "sqlalchemy": {"study/store"},
    "importlib": {"launch", "__init__"},
    "ctypes": {"launch", "worker"},
    "subprocess": {"launch"},
    "torch": {"worker"},
    "deepspeed": {"worker"},
    "click": {"cli"},
    "rich": {"cli"},
    "tomllib": {"core/catalog"},
    "tomli": {"core/catalog"},
    "compression": {"logs/files"},
    "pandas": {"tables", "study/result"},
    "csv": {"tables", "cli", "core/recorded"},
    "matplotlib": {"report/canvas"},
    "jinja2": {"export", "launch", "report"},
    "numpy": {
        *("core/columns", "space", "tables", "costmodel", "audit", "launch", "planning", "search", "sizing", "study"),
        "report",
    },
}
"""The packages that may import a third-party library, or a restricted module of the standard library."""

PURE: Final = (
    *(
        "core/columns",
        "core/domain",
        "core/model",
        "core/outcomes",
        "core/validation",
        "core/keys",
        "core/errors",
        "core/text",
    ),
    *("core/documents", "space", "logs", "costmodel", "audit"),
)
IMPURE: Final = (
    "costmodel/evaluation",
    "costmodel/site_file",
    "logs/files",
    "audit/delivery",
    "audit/api",
    "audit/measure",
    "space/build",
)
"""Modules of otherwise pure packages that read files or raise on bad input."""

IMPURE_LIBRARIES: Final = {
    "time",
    "datetime",
    "random",
    "os",
    "io",
    "pathlib",
    "logging",
    "socket",
    "threading",
    "secrets",
}
NEVER_RAISE: Final = ("costmodel", "space/rules")
MAY_RAISE: Final = ("costmodel/evaluation", "costmodel/site_file", "space/rules/ruleset")
BANNED_CALLS: Final = {"eval", "exec", "os.system", "os.popen", "__import__"}
MAY_PRINT: Final = ("__main__", "cli", "worker")


def reachable(package: str) -> set[str]:
    """Return every package that `package` may import, including itself."""
    found: set[str] = set()
    pending = [package]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [*LAYERS[name][1] - found]
    return found


def layers() -> list[list[str]]:
    """Return the packages in layers, the lowest first; each imports packages of lower layers only."""
    rank: dict[str, int] = {}
    while len(rank) < len(LAYERS):
        for name in LAYERS:
            below = {_package(other) for other in LAYERS[name][1]} - {_package(name)}
            if name not in rank and below <= {_package(other) for other in rank}:
                rank[name] = 1 + max((rank[other] for other in rank if _package(other) in below), default=-1)
    return [[name for name in LAYERS if rank[name] == level] for level in range(max(rank.values()) + 1)]


def table() -> str:
    """Return the layers as the Markdown table of CONTRIBUTING.md."""
    lines = ["| layer | package | contains | may import, with their imports |", "|---|---|---|---|"]
    for level, names in reversed([*enumerate(layers(), start=1)]):
        for name in names:
            contains, below = LAYERS[name]
            lines.append(f"| {level} | `{name}` | {contains} | {', '.join(f'`{one}`' for one in sorted(below))} |")
    return "\n".join(lines) + "\n"


def violations(package: Path) -> list[str]:
    """Return one sentence for each violation of the architecture in the package."""
    texts = {path.relative_to(package).with_suffix("").as_posix(): path for path in sorted(package.rglob("*.py"))}
    return [line for name, path in texts.items() for line in complaints(name, path.read_text(), texts.keys())]


def complaints(module: str, text: str, modules: Collection[str]) -> list[str]:
    """Return the violations in the source of one module; `modules` are all modules of the package."""
    return [f"{module}: {complaint}" for complaint in _complaints(module, ast.parse(text), modules)]


def _package(module: str) -> str:
    """Return the package of a module, such as `launch` for `launch/slurm/job`."""
    return module.split("/")[0]


def _layer(module: str) -> str:
    """Return the entry of `LAYERS` that contains a module."""
    return "launch/virtual" if module.startswith("launch/virtual") else _package(module)


def _within(module: str, names: Iterator[str] | tuple[str, ...] | set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}/") for name in names)


def _complaints(module: str, tree: ast.Module, modules: Collection[str]) -> Iterator[str]:
    if module != "__init__" and _layer(module) not in LAYERS:
        yield f"is in no layer; add {_package(module)} to LAYERS"
        return
    for imported in imports(tree):
        parts = imported.split(".")
        if parts[0] == "tuner":
            yield from _against_layers(module, "/".join(parts[1:]), modules)
        else:
            yield from _against_owners(module, parts[0])
    yield from _against_purity(module, tree)


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield every imported module, including imports inside functions but not those for the type checker only."""
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
            elif node.module and node.module.split(".")[0] == "tuner":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def _against_layers(module: str, imported: str, modules: Collection[str]) -> Iterator[str]:
    target = next((name for name in (imported, imported.rpartition("/")[0]) if name in modules), imported)
    if target in ("", "__version__", "__init__") or imported == "__version__":
        return
    if module == "__init__":
        yield f"the package itself imports {imported}; importing it must cost nothing"
    elif _layer(target) not in LAYERS:
        yield f"imports tuner.{imported.replace('/', '.')}, which is in no layer"
    elif _layer(target) == "worker" != _layer(module):
        yield "imports the worker, which runs in a process of its own"
    elif _layer(target) not in reachable(_layer(module)) and _package(target) != _package(module):
        yield f"{_layer(module)} may not import {_layer(target)}"
    else:
        back_ends = {end for end in BACK_ENDS for name in (module, target) if _within(name, {end})}
        if len(back_ends) > 1:
            yield f"imports another launch back end, {target}"


def _against_owners(module: str, library: str) -> Iterator[str]:
    if library in OWNERS:
        if not _within(module, OWNERS[library]):
            yield f"imports {library}, which belongs to {' and '.join(sorted(OWNERS[library]))}"
    elif library not in sys.stdlib_module_names:
        yield f"imports {library}, which has no owner"
    elif library == "pickle" or (library == "importlib" and module != "__init__"):
        yield f"imports {library}"
    elif _pure(module) and library in IMPURE_LIBRARIES:
        yield f"is pure and imports {library}"


def _pure(module: str) -> bool:
    return _within(module, PURE) and module not in IMPURE


def _against_purity(module: str, tree: ast.Module) -> Iterator[str]:
    may_print = _within(module, MAY_PRINT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and _within(module, NEVER_RAISE) and module not in MAY_RAISE:
            yield f"raises in line {node.lineno}; rules and estimates return"
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in BANNED_CALLS:
                yield f"calls {name}"
            if name in ("open", "input") and _pure(module):
                yield f"is pure and calls {name}"
            if not may_print and (name == "print" or name.startswith(("sys.stdout", "sys.stderr", "sys.exit"))):
                yield f"calls {name}, which only {' and '.join(MAY_PRINT)} may"
            if any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords):
                yield f"starts a shell in line {node.lineno}"


if __name__ == "__main__":
    print(table(), end="")
