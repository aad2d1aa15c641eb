"""How much memory the embedded Postgres takes for its pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rivet_pipeline.db.embedded import memory_settings

_GIB = 1024**3


@pytest.mark.parametrize(
    ("memory", "buffers", "cache"),
    [
        (512 * 1024**2, "128MB", "256MB"),
        (8 * _GIB, "1024MB", "4096MB"),
        (16 * _GIB, "2048MB", "8192MB"),
        (256 * _GIB, "4096MB", "131072MB"),
    ],
)
def test_an_eighth_of_the_memory_within_bounds(memory: int, buffers: str, cache: str) -> None:
    assert memory_settings(memory, []) == {"shared_buffers": buffers, "effective_cache_size": cache}


@pytest.mark.parametrize(
    ("limit", "buffers"),
    [("2147483648\n", "256MB"), ("max\n", "2048MB"), ("9223372036854771712\n", "2048MB"), ("", "2048MB")],
)
def test_a_container_counts_its_own_memory(tmp_path: Path, limit: str, buffers: str) -> None:
    (tmp_path / "memory.max").write_text(limit)
    limits = [tmp_path / "memory.max", tmp_path / "not there"]
    assert memory_settings(16 * _GIB, limits)["shared_buffers"] == buffers
