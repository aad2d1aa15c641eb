"""What a page makes of a text: nothing unseen, nothing that runs, nothing lost without a word."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from rivet_pipeline.api.hub.conversation import arguments_text
from rivet_pipeline.api.hub.summaries import summary_blocks
from rivet_pipeline.api.hub.texts import (
    MOST_MARKDOWN,
    bare,
    finish,
    fold,
    inline,
    markdown,
    plain,
    tidy,
    typed,
    visible,
)
from rivet_pipeline.api.hub.times import Clock, ago
from rivet_pipeline.retrieval.line_sources import SourceText
from rivet_pipeline_tests.hub_store import HOSTILE

AT = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x07c\x7f", "a\u2400b\u2407c\u2421"),
        ("lone \x1b escape", "lone \u241b escape"),
        ("one\r\ntwo\rthree", "one\ntwo\u240dthree"),
        ("\u202egnp.exe", "\u27e8U+202E\u27e9gnp.exe"),
        ("zero\u200bwidth", "zero\u27e8U+200B\u27e9width"),
        ("arabic\u061cmark", "arabic\u27e8U+061C\u27e9mark"),
        ("tag\U000e0041", "tag\u27e8U+E0041\u27e9"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f4bb", None),
    ],
)
def test_what_can_not_be_seen_is_dropped_or_shown_as_a_sign(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)


def test_an_unended_terminal_sequence_hides_no_words() -> None:
    assert "the rest of the text" in visible("\x1b]0;" + "x" * 3000 + " the rest of the text")


@given(st.text())
def test_what_is_shown_holds_nothing_unseen(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


@given(st.text(alphabet="<>\"'&[](){}!*_`#-\\/: \n\tajavscriptonerr=.|0123"))
def test_no_text_makes_a_tag_that_is_not_of_this_list(text: str) -> None:
    html = str(markdown(text))
    known = "div|p|ul|ol|li|strong|em|s|code|pre|blockquote|hr|br|table|thead|tbody|tr|th|td"
    for tag in re.findall(r"<[^>]*>?", html):
        assert re.fullmatch(
            rf'</?(?:{known})(?: class="(?:prose|plain|code|heading level-[1-6])"| start="\d+")?(?: /)?>', tag
        ), tag


def test_hostile_markdown_stays_text() -> None:
    html = str(markdown(HOSTILE))
    assert not re.search(r"<(?:script|img|svg|a|style|h1|/main)\b", html)
    assert "[click me](javascript:fire(4))" in html
    assert "![tracker](https://evil.example/pixel.png)" in html
    assert "&amp;lt;b&amp;gt;" in html
    assert '<p class="heading level-1">A heading' in html


def test_markdown_is_read_where_it_helps() -> None:
    html = str(markdown("Three *routes*:\n\n- one\n- two\n\n```sh\nls <here>\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"))
    assert "<li>one</li>" in html
    assert '<pre class="code">ls &lt;here&gt;</pre>' in html
    assert "<td>1</td>" in html


def test_a_text_that_is_too_long_for_markdown_is_shown_as_it_is() -> None:
    assert str(markdown("*x* " * MOST_MARKDOWN)).startswith('<div class="plain">*x* ')


def test_what_a_template_prints_is_made_visible_unless_it_is_markup() -> None:
    assert finish("a\x00") == "a\u2400"
    assert finish(None) == ""
    assert finish(Markup("<b>")) == "<b>"
    assert finish(7) == 7
    assert str(plain("<b>\x00")) == '<div class="plain">&lt;b&gt;\u2400</div>'


def test_a_long_text_is_folded_at_a_word_and_says_its_length() -> None:
    text = "some words " * 400
    folded = fold(text)
    assert folded.is_cut
    assert folded.length == len(text)
    assert text.startswith(folded.text)
    assert folded.text.endswith(("some", "words"))


@pytest.mark.parametrize("text", ["", "short", "a little more than the fold " * 65, "line\n" * 30])
def test_a_text_that_is_hardly_longer_than_the_fold_is_left_whole(text: str) -> None:
    assert fold(text).text == text
    assert not fold(text).is_cut


def test_many_lines_are_folded_too() -> None:
    folded = fold("line\n" * 500)
    assert folded.is_cut
    assert folded.text.count("\n") < 30


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "**read-only, UTC** - 2026-09-29T06:04Z opus/user: Migration `day`.",
            "read-only, UTC \N{EN DASH} Migration day.",
        ),
        ("**T** - The **point**.", "T \N{EN DASH} The point."),
        ("- plain", "plain"),
        ("\N{HORIZONTAL ELLIPSIS}09-29T06:04Z opus/user: the rest", "\N{HORIZONTAL ELLIPSIS}the rest"),
        ("the beginning - 2026-09-29T06:04Z op\N{HORIZONTAL ELLIPSIS}", "the beginning\N{HORIZONTAL ELLIPSIS}"),
        ("one **two thr\N{HORIZONTAL ELLIPSIS}", "one two thr\N{HORIZONTAL ELLIPSIS}"),
        ("## Why `pgvector", "Why pgvector"),
    ],
)
def test_a_summary_line_is_tidied_for_a_list(text: str, line: str) -> None:
    assert tidy(text) == line


def test_words_without_marks_keep_what_is_no_mark() -> None:
    assert bare("f(a, **kw), `__init__`, 2 * 3 * 4, *so*") == "f(a, **kw), __init__, 2 * 3 * 4, so"


def test_a_sentence_has_code_and_emphasis_and_nothing_else() -> None:
    assert str(inline("`a<b` **bold** *so* __init__ [x](javascript:y) ![i](j) <b> &lt;")) == (
        "<code>a&lt;b</code> <strong>bold</strong> <em>so</em> __init__ [x](javascript:y) ![i](j) &lt;b&gt; &amp;lt;"
    )


@given(st.text(alphabet="<>\"'&[](){}!*_`~#-\\/: \n\tajavscriptonerr=.|0123"))
def test_no_sentence_makes_a_tag_that_is_not_of_this_list(text: str) -> None:
    assert re.fullmatch(r"(?:[^<>]|</?(?:code|strong|em|s)>)*", str(inline(text)))
    assert re.fullmatch(
        r"(?:[^<>]|</?(?:code|strong|em|s)>)*", str(typed(text))[len('<div class="plain">') : -len("</div>")]
    )


def test_what_a_person_typed_keeps_its_lines_and_its_code() -> None:
    text = "Use **this**:\n  `x`\n```py\nf(*a*, **k**)\n```\n    *indented*\n*so*"
    assert str(typed(text)) == (
        '<div class="plain">Use <strong>this</strong>:\n  <code>x</code>\n```py\nf(*a*, **k**)\n```\n'
        "    *indented*\n<em>so</em></div>"
    )


def test_lines_of_a_summary_lead_to_the_messages_they_quote() -> None:
    first, second = uuid4(), uuid4()
    sources = [
        SourceText(first, AT, "No partition manager: dropping a month is instant."),
        SourceText(second, AT + timedelta(minutes=3), "The harbour office may still edit bookings by hand."),
    ]
    text = (
        "Period 2026-03-02T09:15Z → 2026-03-02T09:18Z · agents opus · 2 messages\n\n**Decisions**\n"
        "- 2026-03-02T09:15Z opus/user: No partition manager: dropping a month is instant.\n"
        "- The harbour office may edit bookings by hand\n"
        "- 2026-02-31T25:61Z opus/user: a minute that never was\n"
        "- Something about entirely different matters altogether\n"
    )
    heading, quoted, retold, invented, unknown = summary_blocks(text, sources)
    assert (heading.text, heading.heading) == ("Decisions", True)
    assert (quoted.at, quoted.voice, quoted.message_id) == (AT, "opus/user", first)
    assert quoted.text == "No partition manager: dropping a month is instant."
    assert retold.message_id == second
    assert (invented.at, invented.message_id) == (None, None)
    assert (unknown.item, unknown.message_id) == (True, None)


def test_times_carry_their_zone_and_are_exact_for_machines() -> None:
    clock = Clock(ZoneInfo("Europe/Berlin"))
    summer = datetime(2026, 9, 29, 6, 17, 5, tzinfo=UTC)
    assert ">29 Sep 2026, 08:17 CEST</time>" in clock.stamp(summer)
    assert 'datetime="2026-09-29T06:17:05Z"' in clock.minute(summer)
    assert ">08:17\N{EN DASH}08:20 CEST<" in str(clock.span(summer, summer + timedelta(minutes=3))).replace(
        "29 Sep 2026, ", ""
    )
    assert "29 Sep 2026 \N{EN DASH} 1 Oct 2026" in clock.span(summer, summer + timedelta(days=2))


@pytest.mark.parametrize(
    ("seconds", "words"), [(20, "just now"), (60, "1 min ago"), (7200, "2 h ago"), (3 * 86_400, "3 days ago")]
)
def test_about_how_long_ago(seconds: int, words: str) -> None:
    assert ago(AT - timedelta(seconds=seconds), AT) == words


def test_arguments_are_lines_for_a_reader() -> None:
    assert arguments_text({"command": "ls", "nested": {"a": 1}}) == 'command: ls\nnested: {"a": 1}'
    assert arguments_text({"patch": "one\ntwo"}) == "patch: \none\ntwo"
    assert arguments_text("as it is") == "as it is"
    assert arguments_text([1]) == "[\n  1\n]"
