"""The hub's small parts: the sign-in cookie, the way back, drawings, what its files may hold."""

from __future__ import annotations

import hashlib
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.api.attempts import Attempts
from rivet_pipeline.api.hub import charts, pages, sign_in
from rivet_pipeline.api.hub.assets import assets
from rivet_pipeline.api.hub.search import telling
from rivet_pipeline.api.hub.timeline import month_of
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.snippets import mark_words
from rivet_pipeline.settings import Settings

HUB = Path(pages.__file__).parent
TOKEN = b"a long random text"
NOW = 1_800_000_000.0


def cookie(value: str) -> str:
    return f"theme=dark; {sign_in.COOKIE}={value}"


def test_a_cookie_is_accepted_until_it_ends() -> None:
    value = sign_in.issue(TOKEN, NOW)
    assert sign_in.accepts(TOKEN, cookie(value), NOW)
    assert sign_in.accepts(TOKEN, cookie(value), NOW + sign_in.LIFETIME - 1)
    assert not sign_in.accepts(TOKEN, cookie(value), NOW + sign_in.LIFETIME + 1)


@pytest.mark.parametrize("forged", ["", "x", ".", "1800000001.", "9999999999.00", "é.é", "1800000001.{}", "\x01"])
def test_nothing_else_is_accepted(forged: str) -> None:
    other = sign_in.issue(b"another token", NOW)
    assert not sign_in.accepts(TOKEN, cookie(forged.format(other.partition(".")[2])), NOW)
    assert not sign_in.accepts(TOKEN, cookie(other), NOW)
    assert not sign_in.accepts(TOKEN, "", NOW)


def test_a_time_of_expiry_can_not_be_moved() -> None:
    expires, _, signature = sign_in.issue(TOKEN, NOW).partition(".")
    assert not sign_in.accepts(TOKEN, cookie(f"{int(expires) + 5}.{signature}"), NOW)


def test_which_paths_are_open() -> None:
    assert [
        path for path in ("/hub", "/hub/health", "/hub/sign-in", "/hub/static/hub.css") if sign_in.is_open(path)
    ] == [
        "/hub/sign-in",
        "/hub/static/hub.css",
    ]
    assert not sign_in.is_page("/hubris")
    assert not sign_in.is_open("/hub/sign-in/../health")


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/hub",
        "//evil.example/hub",
        "/\\evil.example",
        "/hub\\..",
        "/docs/x",
        "/api/memory/stats",
        "javascript:alert(1)",
        "/hub\n/x",
        "",
        None,
        "/hubris",
        "/hub" + "x" * 5000,
    ],
)
def test_the_way_back_never_leads_out_of_the_hub(wanted: str | None) -> None:
    assert pages.way_back(wanted) == "/hub"


@pytest.mark.parametrize("wanted", ["/hub", "/hub/health", "/hub?q=a%20b&agent=", "/hub/c/1?page=2"])
def test_the_way_back_leads_where_one_was(wanted: str) -> None:
    assert pages.way_back(wanted) == wanted


def test_a_year_has_a_square_a_day_and_links_for_days_with_something() -> None:
    last = date(2026, 3, 10)
    drawing = str(charts.year_of_days({last: 2, last - timedelta(days=1): 40}, last, "/hub/day/"))
    assert drawing.count("<rect") == 52 * 7 + 2
    assert re.findall(r'href="([^"]+)"', drawing) == ["/hub/day/2026-03-09", "/hub/day/2026-03-10"]
    assert "2026-03-10: 2 conversations" in drawing
    assert [charts.level(count) for count in (0, 1, 3, 6, 500)] == [0, 1, 2, 3, 4]


def test_lines_leave_out_what_is_not_there_and_stay_within_the_drawing() -> None:
    days = [date(2026, 1, 5), date(2026, 1, 12), date(2026, 1, 19)]
    drawing = str(charts.lines_over_time(days, [charts.Line("a", [0.0, None, 1.7])], "A & <b>", name="it"))
    assert drawing.count("<circle") == 2
    assert '<title id="it-title">A &amp; &lt;b&gt;</title>' in drawing
    assert 'aria-labelledby="it-title" aria-describedby="it-desc"' in drawing
    assert '<desc id="it-desc">2026-01-05 to 2026-01-19. a: 0%, at the end 170%.</desc>' in drawing
    heights = [float(value) for value in re.findall(r'cy="([\d.]+)"', drawing)]
    assert heights[0] > heights[1] >= 0
    assert str(charts.lines_over_time(days[:1], [charts.Line("a", [0.5])], "one", name="it")).count("<circle") == 1


def test_agents_beyond_the_colours_share_the_last() -> None:
    order = [f"agent{number}" for number in range(9)]
    drawing = str(charts.shares(dict.fromkeys(order, 10), order, 90))
    assert set(re.findall(r"colour-(\d)", drawing)) == {"1", "2", "3", "4", "5", "6"}


def test_months_are_read_or_refused() -> None:
    newest = date(2026, 9, 29)
    assert month_of(None, newest) == date(2026, 9, 1)
    assert month_of("2025-12", newest) == date(2025, 12, 1)
    with pytest.raises(InvalidInputError, match="no month"):
        month_of("2025-13", newest)


def test_found_words_are_marked_to_their_end() -> None:
    pieces = mark_words("where partitions", "The partition of user_partitions, Partitioned.")
    assert [text for text, found in pieces if found] == ["partition", "partitions", "Partitioned"]
    assert mark_words("部署", "请部署它") == [("请", False), ("部署", True), ("它", False)]
    assert mark_words("x", "") == []


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("where is the Redis for predictions?", "Redis predictions?"),
        ("where is it?", "where is it?"),
        ("", ""),
        ("uv pip", "uv pip"),
    ],
)
def test_words_of_every_text_are_not_marked(query: str, kept: str) -> None:
    assert telling(query) == kept


@given(st.text(), st.text())
def test_marking_loses_no_character(query: str, text: str) -> None:
    assert "".join(piece for piece, _ in mark_words(query, text)) == text


def test_the_vendored_script_is_the_one_that_is_noted() -> None:
    noted = (HUB / "static" / "VENDORED.md").read_text(encoding="utf-8")
    digest = hashlib.sha256((HUB / "static" / "htmx.min.js").read_bytes()).hexdigest()
    assert digest in noted
    assert f'version:"{re.findall(r"[|] (2[.][0-9.]+) [|]", noted)[0]}"' in assets()["htmx.min.js"].content.decode()
    assert "Zero-Clause BSD" in (HUB / "static" / "htmx.LICENSE").read_text(encoding="utf-8")


def test_only_what_pages_load_is_served() -> None:
    assert sorted(assets()) == ["htmx.min.js", "hub.css", "hub.js", "icon.svg"]


def test_no_template_holds_what_the_policy_forbids_or_switches_escaping_off() -> None:
    environment = pages.Hub(Settings(), Attempts(None), None).templates
    templates = sorted((HUB / "templates").glob("*.html"))
    assert templates
    for template in templates:
        text = template.read_text(encoding="utf-8")
        environment.get_template(template.name)
        assert not re.search(r"<style|\sstyle=|\son\w+=|\|\s*safe\b|autoescape|hx-on|javascript:", text), template.name
        assert not re.search(r"<script(?! src=\"\{\{ asset\()", text), template.name
        assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", text), template.name


def test_the_style_sheet_loads_nothing() -> None:
    assert not re.search(r"url\(|@import", assets()["hub.css"].content.decode())
