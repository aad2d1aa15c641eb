"""Identifiers and grounding: what counts as an identifier, and when a source contains it."""

from __future__ import annotations

import pytest

from rivet_pipeline.summaries.grounding import MAX_MISSING, covered, ground, identifiers, telling_words


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
        ("PR 7 and issue 12, not 3 issues", ["PR 7", "issue 12"]),
        ("the \u00bbHedvig\u00ab, \u201eFrøya II\u201c and 'Grete II'", ["Hedvig", "Frøya II", "Grete II"]),
        ("it's Mara's and the gauges' own", []),
        ("1,200 at 4 cm", ["1,200", "4 cm"]),
        ("on 3 September, Oct. 9th 2026 and in May 2025", ["3 September", "Oct. 9th 2026", "May 2025"]),
        ("am 3. September, in 2026-09; you may 2 of 3", ["3. September", "2026-09"]),
        ("2026-10-3, 10/3/2026, 2026/10/03, 3.10.2026, 1/2/3", ["2026-10-3", "10/3/2026", "2026/10/03", "3.10.2026"]),
        ("from 04:30 to 6:30 pm, 8pm or 10:14:31", ["04:30", "6:30 pm", "8pm", "10:14:31"]),
        ("UTC+02:00, x.py:12:30, 16:9 and 12:340", ["x.py"]),
        (
            "5 months and 2 years at sqlite3.com by mara@tidewatch.example.org",
            ["5 months", "2 years", "sqlite3.com", "mara@tidewatch.example.org"],
        ),
        (
            'it said "The bad news is that If-Match Headers are lost" to `If-M`',
            ["The bad news is that If-Match Headers are lost", "If-M"],
        ),
        (f'"{"a long one " * 15}"', [("a long one " * 15).strip()]),
        ("created by Steve Brown, then by Steve B. and Mr. Jones", ["Steve Brown", "Steve B", "Mr. Jones"]),
        ("**Tide Gauge Importer**\n- Redis Cluster started. Mara wrote it, and I use uv", []),
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


@pytest.mark.parametrize(
    ("summary", "source"),
    [
        ("12 ms", "took 12ms"),
        ("12ms", "took 12 ms"),
        ("24 minutes", "24 min in all"),
        ("8.5 s", "8.5 seconds"),
        ("40 %", "40% of it"),
        ("1,896 rows", "there were 1896 rows"),
        ("1896 rows", "1\u202f896 rows"),
        ("1,200", "1200 of them"),
        ("PR 7", "see #7"),
        ("#41", "merged PR 41"),
        ("#41", "merged pull request #41"),
        ("#41", "https://github.com/mara/tidewatch/pull/41"),
        ("issue 12", "closes GH-12"),
        ("2026-04-18", "at 2026-04-18T12:00Z"),
        ("2026-04-18T12:00Z", "at 2026-04-18 12:00:31.5"),
        ("2026-04-18T10:00Z", "at 2026-04-18T12:00:00+02:00"),
        ("2026-09-03", "decided on 3 September 2026"),
        ("2026-09-03", "[#01 2026-09-24T08:00Z a/user] Decision, September 3rd: yes"),
        ("2026-03-05", "am 5. März 2026"),
        ("v2.0.24", "release 2.0.24."),
        ("2.0.24", "release v2.0.24."),
        ("3f2a91c", "commit 3f2a91c0ffee1234567890abcdef1234567890ab"),
        ("https://example.org/a/", "at https://example.org/a."),
        ("the `uv sync`", "run uv  sync now"),
        ('"Live Server"', "the \u201clive server\u201d"),
        ("`Error: Expected number, \u2026 at line 9`", "Error: Expected number, got NaN at line 9"),
        ("user_store.py", "in `src/app/user_store.py`:"),
        ("port 5174", "**5174**, as ever"),
        ("3 September", "at 2026-09-03T08:00Z"),
        ("September 3rd, 2026", "am 3.9.2026"),
        ("September 3, 2026", "on 3 September"),
        ("2026-9-3", "2026-09-03T08:00Z"),
        ("9/3/2026", "3 September 2026"),
        ("3/9/2026", "3 September 2026"),
        ("3.9.2026", "2026/09/03"),
        ("2026-09-03", "am 3.9.2026"),
        ("8 Sept. 2026", "Sep 08 02:15:02 brine"),
        ("8 September 2026", "[08/Sep/2026:02:15:02] dump-20260908.sql"),
        ("8 September 2026", "dump-20260908.sql"),
        ("September 2026", "2026-09-03"),
        ("2026-09", "on 3 September 2026"),
        ("10:14", "2026-09-29T10:14Z"),
        ("10:14", "2026-09-29T12:14:31.5+02:00"),
        ("10:14:31", "2026-09-29T10:14:31.5Z"),
        ("04:30", "at 4:30"),
        ("6:30 p.m.", "18:30:00 daily"),
        ("18:30", "at 6:30 in the evening"),
        ("8pm", "20:00"),
        ("7:00", "um 7 Uhr"),
        ("by Steve Brown", "steve asked Mr Brown"),
        ("by Herrn Thode", "Herr Thode"),
        ("in Visual Studio Code", "the code of visualstudio, studio"),
        ("5 months", "5-month"),
        ("PostToolUse", "\x1b[1mPostToolUse:Edit\x1b[22m"),
    ],
)
def test_other_spellings_of_the_same_are_no_misses(summary: str, source: str) -> None:
    assert ground(summary, [source]) == (1.0, [])


@pytest.mark.parametrize(
    ("summary", "source"),
    [
        ("12 ms", "112 ms"),
        ("12 ms", "12 s"),
        ("1,896 rows", "11,896 rows"),
        ("#41", "#412 and 4.41"),
        ("PR 7", "pull request 17"),
        ("2026-04-19", "2026-04-18T12:00Z"),
        ("2026-04-18T12:01Z", "2026-04-18T12:00Z"),
        ("2026-09-03", "3 September 2025"),
        ("2.0.24", "2.0.245"),
        ("3f2a91c0ffee12", "commit 3f2a91c"),
        ("/srv/tidewatch/app.py", "app.py of tidewatch"),
        ("`Error: a \u2026 of line 9`", "Error: a in line 8"),
        ('"Hedvig"', "the Grete"),
        ("5433", "54330 and 1.5433"),
        ("3 September", "2026-09-13 and 3 October"),
        ("3 September 2025", "3 September 2026"),
        ("September 2025", "2026-09-03"),
        ("2026-9-3", "2026-09-13 and 2026-10-03"),
        ("3.9.2026", "2026-09-30, 3.9.1 and 3.9"),
        ("2026-17", "2026-09-17"),
        ("04:30", "at 14:30 and 4:31"),
        ("6:30 pm", "06:30"),
        ("10:14:32", "10:14:31"),
        ("8pm", "08:00"),
        ("by Steve Brown", "Steve was asked"),
        ("asked Mr. Jones", "Mr. Brown"),
        ("at sqlite3.com", "sqlite3"),
        ("`If-M`", "If-Match"),
        ("5 months", "15 months and 5 days"),
    ],
)
def test_what_only_looks_alike_is_a_miss(summary: str, source: str) -> None:
    share, missing = ground(summary, [source])
    assert share == 0.0
    assert len(missing) == 1


def test_sources_that_left_none_of_their_own_words_are_found() -> None:
    sources = ["the gauge TG-02 stamps local time", "the gauge polls every six minutes", "yes, go", "the gauge itself"]
    # "gauge" stands in several, "yes, go" tells nothing.
    assert covered("TG-02 of the gauge: its local time", sources) == [True, False, None, False]
    assert covered("nothing of it", sources) == [False, False, None, False]
    assert covered("Polls SIX minutes", sources)[1] is True


def test_telling_words() -> None:
    assert telling_words("The src/berth_store.py has 5174 rows and is new") >= {"berth", "store", "5174"}
    assert telling_words("潮位メモ") == {"潮位", "位メ", "メモ"}
    assert telling_words("it is so") == set()
