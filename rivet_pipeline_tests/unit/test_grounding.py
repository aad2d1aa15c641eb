"""Identifiers and grounding: what counts as an identifier, and when a source contains it."""

from __future__ import annotations

import pytest

from rivet_pipeline.summaries.grounding import MAX_MISSING, ground, identifiers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/app/user_store.py and /etc/hosts.", ["src/app/user_store.py", "/etc/hosts"]),
        ("in ~/.rivetos and ./run.sh, C:\\Temp\\a.txt", ["~/.rivetos", "./run.sh", "C:\\Temp\\a.txt"]),
        ("commit 3f2a91c, not defaced", ["3f2a91c"]),
        ("id 36d9e1bc-63bf-4e97-8a3e-2b20ba8583f2", ["36d9e1bc-63bf-4e97-8a3e-2b20ba8583f2"]),
        ("upgraded to v2.0.24 and 3.11", ["v2.0.24", "3.11"]),
        ("took 12 ms, 1.5 GB and 40%", ["12 ms", "1.5 GB", "40%"]),
        ("PR #128 for PROJ-1234", ["#128", "PROJ-1234"]),
        ("at https://example.org/a?b=1 (see it).", ["https://example.org/a?b=1"]),
        ("on 2026-04-18T12:00Z and 2026-04-19", ["2026-04-18T12:00Z", "2026-04-19"]),
        ("run `uv sync --all` with --no-cache", ["uv sync --all", "--no-cache"]),
        ('the "Live Server" extension', ["Live Server"]),
        ("getUserById reads RIVETOS_PG_URL and user_id", ["getUserById", "RIVETOS_PG_URL", "user_id"]),
        ("port 5174 of package.json", ["5174", "package.json"]),
        ("Nothing of the kind, really.", []),
    ],
)
def test_identifiers(text: str, found: list[str]) -> None:
    assert identifiers(text) == found


def test_the_share_and_the_missing() -> None:
    source = "the test of `a.py` took 112 ms on port 5174"
    assert ground("`a.py` took 12 ms on port 5174 at 9f8e7d6c", [source]) == (0.5, ["12 ms", "9f8e7d6c"])
    assert ground("`A.PY` took 112  ms", ["`a.py`", "took 112 ms"]) == (1.0, [])


def test_a_text_without_identifiers_has_no_share() -> None:
    assert ground("Everything went well.", ["source"]) == (None, [])


def test_the_missing_are_bounded() -> None:
    share, missing = ground(" ".join(f"#{number}" for number in range(200, 400)), ["nothing"])
    assert share == 0.0
    assert len(missing) == MAX_MISSING
