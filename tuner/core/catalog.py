"""GPUs, clusters and models by name, from the shipped tables and the user's TOML files.

A file contains tables `[gpu.NAME]`, `[cluster.NAME]`, `[model.NAME]` and `[family.NAME]`. Files listed in the
environment variable TUNER_CATALOG (separated by colons) are read after the shipped ones and may replace their entries.
This module converts human units to SI.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tuner.core import huggingface
from tuner.core.catalog_entries import Table, model_entry, naming, need, only_known, texts
from tuner.core.domain import Cluster, Fabric, Gpu, Link
from tuner.core.errors import InputError, UnknownName, reason_of
from tuner.core.model import Model
from tuner.core.quantity import GIB
from tuner.core.resources import catalog_files
from tuner.core.text import listed, shown

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the standard library has it from 3.11 on
    import tomli as tomllib

_KINDS: Final = ("gpu", "cluster", "model", "family")
_LARGEST_FILE: Final = 4 << 20
MAX_TOML_TABLES: Final = 10_000
MAX_TOML_DEPTH: Final = 32
"""Limits of TOML, whose parser takes time by the square of both."""


_INTRA_NODE_LATENCY: Final = 3.4e-6
_INTER_NODE_LATENCY: Final = 14e-6
"""Seconds of a ring step with NCCL's Simple protocol over NVLink and over the network (NCCL 2.18, tuning.cc, hwLat)."""


@dataclass(kw_only=True)
class Catalog:
    """All known entries, as the tables in the files."""

    gpu: dict[str, Table] = field(default_factory=dict)
    cluster: dict[str, Table] = field(default_factory=dict)
    model: dict[str, Table] = field(default_factory=dict)
    family: dict[str, Table] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Read another file; its entries replace those of the same name."""
        for section, entries in read_toml(path).items():
            if section not in (*_KINDS, "sheet"):
                raise InputError(f"{path}: unknown table [{section}]; the tables are {listed(_KINDS)}.")
            if not isinstance(entries, dict) or (
                section != "sheet" and not all(isinstance(entry, dict) for entry in entries.values())
            ):
                raise InputError(f"{path}: [{section}] must contain tables such as [{section}.NAME].")
            for name, entry in entries.items():
                if section in ("gpu", "model"):
                    texts(entry.get("aliases", []), f"{path}: {section} {name!r}: aliases")
                if section == "family":
                    _check_family(entry, f"{path}: family {name!r}")
            if section != "sheet":
                getattr(self, section).update(entries)

    def model_names(self) -> list[str]:
        """Return the names of all models, including the members of families."""
        members = [f"{family}-{heads}" for family, table in self.family.items() for heads in table["members"]]
        return [*self.model, *members]


@cache
def catalog() -> Catalog:
    """Return the shipped and the user's tables; they are read once."""
    known = Catalog()
    user_files = [Path(name) for name in os.environ.get("TUNER_CATALOG", "").split(":") if name]
    for path in [*catalog_files(), *user_files]:
        known.add(path)
    return known


def gpu(name: str) -> Gpu:
    """Return a GPU by name, alias (with or without a leading NVIDIA or AMD), or path of a TOML file."""
    if _is_path(name):
        entry_name, table = _only_entry(Path(name), "gpu")
        return _gpu(entry_name, table, origin=name)
    spellings = {_folded(name), re.sub(r"^(nvidia|amd)-", "", _folded(name))}
    for known, table in catalog().gpu.items():
        if not spellings.isdisjoint({_folded(known), *map(_folded, table.get("aliases", ()))}):
            return _gpu(known, table, origin="the catalog")
    raise _unknown("GPU", name, catalog().gpu, files="A TOML file with [gpu.NAME]")


def cluster(name: str) -> Cluster:
    """Return a cluster by name or path of a TOML file, which may describe its GPU too."""
    if not _is_path(name):
        return _cluster(name, _by_name("cluster", name, catalog().cluster), origin="the catalog")
    entry_name, table = _only_entry(Path(name), "cluster")
    gpu_tables, gpu_name = read_toml(Path(name)).get("gpu", {}), table.get("gpu")
    gpu_table = gpu_tables.get(gpu_name) if isinstance(gpu_tables, dict) and isinstance(gpu_name, str) else None
    own_gpu = _gpu(str(gpu_name), gpu_table, origin=name) if isinstance(gpu_table, dict) else None
    return _cluster(entry_name, table, origin=name, own_gpu=own_gpu)


def model(name: str) -> Model:
    """Return a model by name or path: a TOML file, a Hugging Face `config.json`, or a folder that contains one."""
    if not _is_path(name):
        family, _, heads = name.rpartition("-")
        if family in catalog().family and heads.isdecimal():
            return _family_member(name, catalog().family[family], int(heads[:9]))
        return model_entry(model_name(name), _by_name("model", name, catalog().model), origin="the catalog")
    path = _described(name)
    if path.suffix == ".toml":
        entry_name, table = _only_entry(path, "model")
        return model_entry(entry_name, table, origin=name)
    config = _json(path)
    if huggingface.looks_like(config):
        return huggingface.model_from(config, name=huggingface.name_of(path), where=str(path))
    return model_entry(path.stem, config, origin=name)


def known_model(name: str) -> Model | None:
    """Return the catalog's model of this name or alias; None if it has none."""
    return model(name) if name and not _is_path(name) and _found(name, catalog().model) else None


def model_name(name: str) -> str:
    """Return the catalog's name of a model that is given by an alias; any other name as it is."""
    entry = _found(name, catalog().model)
    aliased = entry is not None and _folded(name) in map(_folded, entry.get("aliases", ()))
    return next(known for known, table in catalog().model.items() if table is entry) if aliased else name


def states_positions(name: str) -> bool:
    """Whether a model's description states its number of positions, instead of using the sequence length."""
    if not _is_path(name):
        return "max_positions" in (_found(name, catalog().model) or {})
    path = _described(name)
    if path.suffix == ".toml":
        return "max_positions" in _only_entry(path, "model")[1]
    config = _json(path)
    return huggingface.looks_like(config) or "max_positions" in config


def trained_with(name: str) -> dict[str, Any]:
    """Return the attention kernel, precision and framework of a model's training, as far as its entry lists them."""
    if _is_path(name):
        path = _described(name)
        entry = _only_entry(path, "model")[1] if path.suffix == ".toml" else {}
    else:
        entry = _found(name, catalog().model) or {}
    return {key: entry[key] for key in ("attention", "precision", "framework") if key in entry}


def make_cluster(
    *,
    name: str,
    nodes: int,
    gpus_per_node: int,
    gpu: Gpu,
    intra: float = 0.0,
    inter: float = 0.0,
    host: float = 0.0,
    nvlink_domain: int | None = None,
    fabric: Fabric | None = None,
) -> Cluster:
    """Return a cluster of typical nodes of a GPU; nonzero `intra` and `inter` override its bandwidths (bytes/s).

    `host` is the main memory of a node in bytes, if it is specified. Without `nvlink_domain` the intra-node fabric ends
    at the node.
    """
    return Cluster(
        name=name,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        intra_node=Link(bandwidth=intra or gpu.intra_node_bandwidth, latency=_INTRA_NODE_LATENCY),
        inter_node=Link(bandwidth=inter or gpu.inter_node_bandwidth * gpus_per_node, latency=_INTER_NODE_LATENCY),
        host_memory=host,
        nvlink_domain=None if nvlink_domain == gpus_per_node else nvlink_domain,
        fabric=fabric,
    )


def usual_domain(gpu: Gpu, gpus_per_node: int) -> int | None:
    """Return the GPUs that share NVLink in the system that the GPU is sold in, if these are more than a node's."""
    domain = gpu.nvlink_domain
    return domain if domain and domain % gpus_per_node == 0 else None


def _gpu(name: str, table: Table, *, origin: str) -> Gpu:
    where = f"{origin}: gpu {name!r}"
    peaks = need(table, "peak_tflops", where)
    if not isinstance(peaks, dict) or not peaks:
        raise InputError(f"{where}: peak_tflops must be a table such as {{ fp16 = 312.0 }}.")
    known = {"aliases", "memory_gib", "memory_gb_s", "sms", "peak_tflops", "intra_node_gb_s", "inter_node_gbit_s"}
    only_known(table, known | {"attention", "achievable", "nvlink_domain", "gpus_per_node"}, where)

    def figure(key: str) -> float:
        return _positive(need(table, key, where), f"{where}: {key}")

    with naming(where):
        return Gpu(
            name=name,
            memory=figure("memory_gib") * GIB,
            memory_bandwidth=figure("memory_gb_s") * 1e9,
            sms=need(table, "sms", where),
            peak_flops={
                precision: _positive(peak, f"{where}: {precision}") * 1e12 for precision, peak in peaks.items()
            },
            intra_node_bandwidth=figure("intra_node_gb_s") * 1e9,
            inter_node_bandwidth=figure("inter_node_gbit_s") * 1e9 / 8,
            attention=table.get("attention", "flash2"),
            nvlink_domain=table.get("nvlink_domain"),
            gpus_per_node=table.get("gpus_per_node"),
            **({"achievable": figure("achievable")} if "achievable" in table else {}),
        )


_RATES: Final = ("intra_node_gb_s", "node_gbit_s")
"""Fields of a cluster that override its GPU's typical values."""


def _cluster(name: str, table: Table, *, origin: str, own_gpu: Gpu | None = None) -> Cluster:
    where = f"{origin}: cluster {name!r}"
    only_known(table, {"nodes", "gpus_per_node", "gpu", "host_memory_gib", "nvlink_domain", "fabric", *_RATES}, where)
    overrides = [key for key in ("host_memory_gib", *_RATES) if key in table]
    rates = {key: _positive(table[key], f"{where}: {key}") for key in overrides}
    sizes = {key: need(table, key, where) for key in ("nodes", "gpus_per_node")}
    for key, size in sizes.items():
        if type(size) is not int:
            raise InputError(f"{where}: {key} must be a whole number, not {shown(size)}.")
    card = own_gpu or gpu(str(need(table, "gpu", where)))
    with naming(where):
        return make_cluster(
            name=name,
            **sizes,
            gpu=card,
            intra=rates.get("intra_node_gb_s", 0.0) * 1e9,
            inter=rates.get("node_gbit_s", 0.0) * 1e9 / 8,
            host=rates.get("host_memory_gib", 0.0) * GIB,
            nvlink_domain=table.get("nvlink_domain", usual_domain(card, sizes["gpus_per_node"])),
            fabric=table.get("fabric"),
        )


def _check_family(table: Table, where: str) -> None:
    members = need(table, "members", where)
    numbers = [need(table, "layers_per_4_heads", where), need(table, "hidden_per_head", where)]
    numbers += members if isinstance(members, list) else [members]
    if not isinstance(members, list) or not all(type(number) is int and number > 0 for number in numbers):
        raise InputError(
            f"{where}: layers_per_4_heads and hidden_per_head must be whole numbers, and members a list of them."
        )


def _family_member(name: str, table: Table, heads: int) -> Model:
    """Return the member of a family with this number of heads, which determines its width and depth."""
    entry = dict(table)
    per_four, width = entry.pop("layers_per_4_heads"), entry.pop("hidden_per_head")
    entry.pop("members")
    if heads < 4 or heads % 4:
        raise InputError(f"{name}: heads must be a multiple of 4, because layers are {per_four}/4 of them.")
    sizes = {"heads": heads, "layers": per_four * heads // 4, "hidden": width * heads}
    return model_entry(name, {**entry, **sizes}, origin="the catalog")


def _by_name(section: str, name: str, entries: Mapping[str, Table]) -> Table:
    if (table := _found(name, entries)) is not None:
        return table
    names = catalog().model_names() if section == "model" else list(entries)
    files = "a TOML file or a Hugging Face config.json" if section == "model" else "a TOML file"
    raise _unknown(section, name, names, files=f"The path of {files}")


def _found(name: str, entries: Mapping[str, Table]) -> Table | None:
    folded = _folded(name)
    exact = (table for known, table in entries.items() if _folded(known) == folded)
    return next(exact, next((one for one in entries.values() if folded in map(_folded, one.get("aliases", ()))), None))


def _only_entry(path: Path, section: str) -> tuple[str, Table]:
    """Return the name and table of the only entry in a user's file; a file without tables is itself the entry."""
    data = read_toml(path)
    if section not in data:
        if any(other in data for other in _KINDS if isinstance(data.get(other), dict) and other != "gpu"):
            raise InputError(f"{path} has no table [{section}.NAME].")
        return str(data.pop("name", path.stem)), data
    entries = data[section]
    if not isinstance(entries, dict) or len(entries) != 1 or not isinstance(next(iter(entries.values())), dict):
        raise InputError(f"{path} must have exactly one table [{section}.NAME].")
    name, table = next(iter(entries.items()))
    return name, table


def read_toml(path: Path) -> Table:
    """Return the tables of a TOML file. Raise `InputError` if it cannot be read or parsed."""
    return toml_of(read_text(path), str(path))


def toml_of(text: str, name: str) -> Table:
    """Return the tables of a TOML text. Raise `InputError` before parsing what would take minutes."""
    lines = text.splitlines()
    if sum(line.startswith("[") for line in lines) > MAX_TOML_TABLES or any(map(_is_too_deep, lines)):
        raise InputError(
            f"{name} is not valid TOML: it has more than {MAX_TOML_TABLES:,} tables, or keys of more than "
            f"{MAX_TOML_DEPTH} parts."
        )
    try:
        table: Table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of too many digits is a plain ValueError
        raise InputError(f"{name} is not valid TOML: {error}.") from None
    return table


def _is_too_deep(line: str) -> bool:
    """Whether a line's key has too many parts; one with commas is a line of an array."""
    key = line.partition("=")[0]
    return key.count(".") > MAX_TOML_DEPTH and "," not in key


def _json(path: Path) -> Table:
    try:
        data = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        hint = "" if path.suffix == ".json" else " (the name of a TOML file ends in .toml)"
        raise InputError(f"{path} is not valid JSON{hint}: {error}.") from None
    if not isinstance(data, dict):
        raise InputError(f"{path} does not contain a JSON object.")
    return data


def _described(name: str) -> Path:
    """Return the file that describes the model at a path: the path itself, or the config.json in a folder."""
    try:
        path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(name)} cannot be read: {reason_of(error)}.") from None
    if not exists and re.fullmatch(r"\w[\w.-]*/[\w.-]+(?<!\.json)(?<!\.toml)", name):
        raise InputError(
            f"there is no file or folder {name}; for a model on the Hugging Face Hub, download its config.json and "
            "pass the path."
        )
    return path


def read_text(path: Path, *, most: int = _LARGEST_FILE) -> str:
    """Return the text of a file or pipe, of at most `most` bytes of UTF-8. Raise `InputError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        text = data.decode("utf-8-sig") if len(data) <= most else ""
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1:,} is 0x{error.object[error.start]:02x}"
        raise InputError(f"{str(path)!r} is not UTF-8 text ({where}); save it as UTF-8.") from None
    except FileNotFoundError:
        raise InputError(f"there is no file {path}.") from None
    except (IsADirectoryError, NotADirectoryError):
        raise InputError(f"{path} is not a file.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(str(path))} cannot be read: {reason_of(error)}.") from None
    if len(data) > most:
        raise InputError(f"{path} is larger than {most:,} bytes.")
    return io.StringIO(text, newline=None).read()  # with the line ends of any system


def kind_of_path(name: str) -> str:
    """Return `file` or `folder` if the name is that of an existing one, else an empty string."""
    try:
        return "" if not name or not Path(name).exists() else "folder" if Path(name).is_dir() else "file"
    except (OSError, ValueError):  # no file can have such a name
        return ""


def _unknown(noun: str, name: str, known: Iterable[str], *, files: str) -> UnknownName:
    path_kind = kind_of_path(name)
    remedy = f"For the {path_kind} {name}, write ./{name}." if path_kind else f"{files} works too."
    return UnknownName(noun, name, known, remedy=remedy)


def _is_path(name: str) -> bool:
    return name.endswith((".toml", ".json")) or os.sep in name or name in (".", "..")


def _folded(name: str) -> str:
    return name.casefold().replace(" ", "-").replace("_", "-")


def _positive(value: Any, label: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise InputError(f"{label} must be a positive number, not {shown(value)}.")
    return float(value)
