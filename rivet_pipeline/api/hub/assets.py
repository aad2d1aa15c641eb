"""The style sheet and the scripts, read once from this package. What a caller asks for is a key, never a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file. `mark` changes with its content."""

    content: bytes
    media_type: str
    mark: str


@cache
def assets() -> dict[str, Asset]:
    """All that pages load, by name."""
    found = {}
    for entry in (files("rivet_pipeline.api.hub") / "static").iterdir():
        media_type = _TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            content = entry.read_bytes()
            found[entry.name] = Asset(content, media_type, hashlib.sha256(content).hexdigest()[:16])
    return found
