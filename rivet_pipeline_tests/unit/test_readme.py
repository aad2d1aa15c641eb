"""The README says what is true: its configuration table, its commands, its links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rivet_pipeline.cli.main import COMMANDS

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")


def test_the_configuration_table_is_the_one_of_the_settings() -> None:
    shown = _README.split("<!-- settings-table: begin -->")[1].split("<!-- settings-table: end -->")[0]
    made = subprocess.run(
        [sys.executable, "-m", "rivet_pipeline.cli.main", "doctor", "--settings-table"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.strip() == made.strip()


def test_every_command_it_names_exists() -> None:
    named = set(re.findall(r"`rivet ([a-z-]+)", _README)) | set(re.findall(r"^rivet ([a-z-]+)", _README, re.MULTILINE))
    assert named
    assert named <= set(COMMANDS)


def test_its_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", _README) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (_ROOT / link).exists()] == []


def test_every_test_that_the_chapter_of_retrieval_names_exists() -> None:
    chapter = (_ROOT / "docs" / "retrieval.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `(test_\w+\.py)`: `(test_\w+)` \|$", chapter, re.MULTILINE)
    assert len(named) > 10
    tests = _ROOT / "rivet_pipeline_tests" / "integration"
    missing = [(file, test) for file, test in named if f"\ndef {test}(" not in (tests / file).read_text("utf-8")]
    assert missing == []
