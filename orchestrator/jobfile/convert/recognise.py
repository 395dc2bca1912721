"""Recognises a task file by its top-level fields. A mistake in a Tradewind file does not look like another tool's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Literal

import yaml

Tool = Literal["SkyPilot", "dstack"]

DSTACK_TYPES = ("task", "service", "dev-environment", "fleet", "gateway", "volume")
_SKYPILOT_FIELDS = frozenset({"run", "num_nodes", "envs", "file_mounts"})
_SKYPILOT_RESOURCES = frozenset(
    {
        "accelerators",
        "infra",
        "cloud",
        "use_spot",
        "any_of",
        "ordered",
        "instance_type",
        "image_id",
        "cpus",
        "disk_size",
    }
)


def recognise(tree: object, path: str) -> Tool | None:
    """The tool whose task file `tree` is; None for a Tradewind job or group file and for anything else."""
    if not isinstance(tree, Mapping) or "train" in tree or "jobs" in tree:
        return None
    name = PurePath(path).name
    if name.endswith((".dstack.yml", ".dstack.yaml")) or tree.get("type") in DSTACK_TYPES:
        return "dstack"
    resources = tree.get("resources")
    inside = resources.keys() if isinstance(resources, Mapping) else ()
    return "SkyPilot" if _SKYPILOT_FIELDS & tree.keys() or _SKYPILOT_RESOURCES.intersection(inside) else None


def recognise_documents(text: str, path: str) -> Tool | None:
    """The same for several YAML documents in one text, such as a SkyPilot pipeline; None if it cannot be read."""
    try:
        trees = list(yaml.load_all(text, Loader=yaml.BaseLoader))
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        return None
    return next((tool for tree in trees if (tool := recognise(tree, path))), None)
