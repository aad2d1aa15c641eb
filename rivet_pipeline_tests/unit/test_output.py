"""Transcript text made safe for a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rivet_pipeline.cli.output import highlighted, local_time, one_line, print_json, visible


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_a_terminal_acts_on_is_left_and_nothing_is_lost(text: str) -> None:
    shown = visible(text)
    assert not [one for one in shown if (ord(one) < 32 and one not in "\t\n") or 127 <= ord(one) < 160]
    assert len(shown) >= len(text.replace("\r\n", "\n"))
    shown.encode()


def test_escapes_are_written_out() -> None:
    assert visible("a\x1b[0m\x07\r\nb\rc\u202e") == "a\\x1b[0m\\x07\nb\\x0dc\\u202e"
    assert visible("naïve 🚀 公园\t[red]") == "naïve 🚀 公园\t[red]"


def test_one_line_is_cut_with_an_ellipsis() -> None:
    assert one_line("a \n b\tc") == "a b c"
    assert one_line("abcdef", 4) == "abc…"


def test_markup_in_a_text_has_no_effect_and_the_words_of_the_query_are_set_off() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system="standard")
    console.print(highlighted("[red]Sessions[/red] live", "sessions (+*"))
    assert "[red]" in out.getvalue()
    assert "\x1b[1;33mSessions\x1b[0m" in out.getvalue()


def test_times_carry_the_name_of_their_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert local_time(datetime(2026, 7, 1, 12, tzinfo=UTC), berlin) == "2026-07-01 14:00 CEST"


def test_json_is_exact_and_inert(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x1b \x9b \u202e é \ud800", "at": datetime(2026, 7, 1, tzinfo=UTC)}
    print_json(value)
    printed = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e"} & set(printed)
    assert json.loads(printed) == {"text": value["text"], "at": "2026-07-01T00:00:00Z"}
