"""Words that begin with a dash are words, and options stay options."""

from __future__ import annotations

import pytest

from rivet_pipeline.cli.free_text import words_last

OPTIONS = {"--limit": True, "-n": True, "--agent": True, "--json": False, "--no-json": False, "-h": False}


@pytest.mark.parametrize(
    ("args", "read"),
    [
        (["redis", "--limit", "5"], ["redis", "--limit", "5"]),
        (["- fix the tests", "--json"], ["--json", "--", "- fix the tests"]),
        (["--json", "--force is bad?", "-n", "3"], ["--json", "-n", "3", "--", "--force is bad?"]),
        (["-1 of them\n- and a list", "--json"], ["--json", "--", "-1 of them\n- and a list"]),
        # Words that begin like an option.
        (["--json is broken, fix it", "--json"], ["--json", "--", "--json is broken, fix it"]),
        (["--limit 5 is not enough"], ["--", "--limit 5 is not enough"]),
        (["--json=yes is refused", "-h is no help"], ["--", "--json=yes is refused", "-h is no help"]),
        # Values, in each of the ways to write one.
        (["redis", "--agent", "-a b"], ["redis", "--agent", "-a b"]),
        (["redis", "--agent=-a b"], ["redis", "--agent=-a b"]),
        (["-n 5", "redis"], ["-n 5", "redis"]),
        # One word may be an option mistyped.
        (["redis", "--limt", "5"], ["redis", "--limt", "5"]),
        (["--no-verify"], ["--no-verify"]),
        (["--json", "--", "--limit 5"], ["--json", "--", "--limit 5"]),
        (["-h"], ["-h"]),
        ([""], [""]),
        ([], []),
    ],
)
def test_what_begins_with_a_dash_and_holds_a_space_goes_last(args: list[str], read: list[str]) -> None:
    assert words_last(args, OPTIONS) == read
