"""Where the files that ship beside the code are: `sql/`, `dagster.yaml`, `workspace.yaml`.

In a checkout they stand at the top level; in an installed wheel under `rivet_pipeline/_shipped/`.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The path of a shipped file or folder. Raises `FileNotFoundError` when the installation lacks it."""
    for root in (_PACKAGE / "_shipped", _PACKAGE.parent):
        path = root / name
        if path.exists():
            return path
    raise FileNotFoundError(f"{name} is missing from this installation of rivet-pipeline; install it again")
