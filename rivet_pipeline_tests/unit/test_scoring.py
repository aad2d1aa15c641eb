"""Ranking's arithmetic and the classifier."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.retrieval import scoring
from rivet_pipeline.retrieval.scoring import PROFILE

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def test_weights_are_the_decided_ones() -> None:
    assert (PROFILE.text, PROFILE.semantic, PROFILE.temporal, PROFILE.importance) == (0.3, 0.3, 0.3, 0.1)
    assert scoring.total(context=1, best=1, temporal=1, importance=1) == pytest.approx(1)
    own = scoring.relevance(text=0.5, semantic=0.2)
    assert scoring.total(context=own, best=own, temporal=0.1, importance=0.6) == pytest.approx(
        0.3 * 0.5 + 0.3 * 0.2 + 0.3 * 0.1 + 0.1 * 0.6
    )


def test_temporal_decays_by_day_and_counts_from_the_last_access_of_what_is_often_used() -> None:
    created = NOW - timedelta(days=100)
    last = NOW - timedelta(days=20)
    assert scoring.temporal(now=NOW, created_at=NOW - timedelta(days=10)) == pytest.approx(math.exp(-0.5))
    used = scoring.temporal(now=NOW, created_at=created, last_accessed_at=last, accesses=25)
    assert used == pytest.approx(math.exp(-1) * 1.5)
    seldom = scoring.temporal(now=NOW, created_at=created, last_accessed_at=last, accesses=5)
    assert seldom == pytest.approx(math.exp(-0.05 * (100 - 80 / 5)) * 1.1)


def test_being_returned_once_does_not_make_an_old_row_new() -> None:
    created = NOW - timedelta(days=60)
    never = scoring.temporal(now=NOW, created_at=created)
    once = scoring.temporal(now=NOW, created_at=created, last_accessed_at=NOW, accesses=1)
    assert never < once < 1.25 * never


def test_a_thousand_accesses_count_as_twenty_five() -> None:
    old = NOW - timedelta(days=40)
    many = scoring.temporal(now=NOW, created_at=old, accesses=1000)
    assert many == scoring.temporal(now=NOW, created_at=old, accesses=25)
    assert many == pytest.approx(math.exp(-2) * 1.5)


@given(days=st.floats(-40_000, 40_000), accesses=st.integers(-5, 10**9))
def test_temporal_stays_within_the_scale(days: float, accesses: int) -> None:
    value = scoring.temporal(now=NOW, created_at=NOW - timedelta(days=days / 100), accesses=accesses)
    assert 0 <= value <= 1


def test_a_time_in_the_future_is_an_age_of_zero() -> None:
    assert scoring.temporal(now=NOW, created_at=NOW + timedelta(days=3)) == 1


@given(documents=st.floats(0, 1e9), df=st.floats(0, 1e9))
def test_idf_is_never_negative(documents: float, df: float) -> None:
    assert scoring.idf(documents, df) >= 0


@given(tf=st.integers(1, 500), length=st.floats(1, 1e6), mean=st.floats(1, 1e6))
def test_bm25_grows_with_frequency_and_shrinks_with_length(tf: int, length: float, mean: float) -> None:
    value = scoring.bm25_term(weight=1, tf=tf, length=length, mean_length=mean)
    assert 0 < value < PROFILE.k1 + 1
    assert scoring.bm25_term(weight=1, tf=tf + 1, length=length, mean_length=mean) > value
    assert scoring.bm25_term(weight=1, tf=tf, length=length * 2, mean_length=mean) < value


@given(score=st.floats(0, 1), other=st.floats(0, 1))
def test_a_verbatim_hit_stands_before_any_other(score: float, other: float) -> None:
    assert 0 <= scoring.lift_verbatim(other, False) <= scoring.lift_verbatim(score, True) <= 1


@pytest.mark.parametrize(
    ("role", "tool", "metadata", "text", "expected"),
    [
        ("user", None, {}, "No, that's wrong: the port is 5433", "correction"),
        ("user", None, {}, "Don't use pip here", "correction"),
        ("user", None, {}, "Actually the branch is called main", "correction"),
        ("user", None, {}, "Please, do not\nuse pip", "correction"),
        ("user", None, {}, "correct\u0131on: port 5433", "correction"),
        ("user", None, {}, "F\u0130XME the build", "task"),
        ("user", None, {}, "I prefer short commit messages", "preference"),
        ("user", None, {}, "From now on write tests first", "preference"),
        ("user", None, {}, "fix the login bug", "task"),
        ("user", None, {}, "why does it fail?", "task"),
        ("user", None, {}, "The staging server runs Debian 12", "fact"),
        ("assistant", None, {}, "Actually, I prefer to fix it", "fact"),
        ("assistant", None, {"memory_type": "correction"}, "x", "correction"),
        ("tool", None, {}, "No, wrong", "traffic"),
        ("user", "Bash", {}, "No, wrong", "traffic"),
        ("assistant", None, {"kind": "thinking"}, "hm", "traffic"),
        ("user", None, {"kind": "injected"}, "I prefer tabs", "traffic"),
        ("system", None, {}, "You are helpful", "task"),
        (None, None, {}, "a summary", "fact"),
        ("user", None, {"memory_type": ["odd"]}, "The sky is blue", "fact"),
    ],
)
def test_memory_types(
    role: str | None, tool: str | None, metadata: dict[str, object], text: str, expected: str
) -> None:
    assert scoring.memory_type(role, tool, metadata, text) == expected


def test_importance_is_ordered_as_decided() -> None:
    assert scoring.IMPORTANCE == {"correction": 0.9, "preference": 0.8, "fact": 0.6, "task": 0.5, "traffic": 0.3}


@pytest.mark.parametrize(
    "query",
    ["src/app/user_store.py", "user_store.py", "App.tsx:42:13", "PROJ-1234", "gpt-4o", "1.2.3", "getUserById",
     "__init__", "E11000", "4711", "TypeError in app.py:42", "/etc/hosts", "/readyz", "C:\\temp",
     "C++", "F#", "73%", "k=v", "R&D", "<abbr>", "@nasa", "#4821", "C:\\", "flush()", "--no-verify", ".env", "$HOME"],
)  # fmt: skip
def test_literal_queries(query: str) -> None:
    assert scoring.looks_literal(query)


@pytest.mark.parametrize(
    "query",
    ["deploy script", "a follow-up question", "what did we decide about app.py last week", "redis - why?", "**Redis**",
     "etc. ...", "Tom & Jerry", "(maybe)", "tea / coffee", "\"drop redis\"", "why? because!"],
)  # fmt: skip
def test_queries_of_words(query: str) -> None:
    assert not scoring.looks_literal(query)


def test_stubs_and_machinery_weigh_less() -> None:
    def factor(kind: str, tool: str | None, characters: int) -> float:
        return scoring.noise_factor(kind=kind, tool_name=tool, role="assistant", characters=characters)

    assert factor("injected", None, 5000) < 1
    assert factor("notice", None, 5000) < 1
    assert factor("speech", "Bash", 16) < 1
    assert factor("speech", "Bash", 400) == 1
    assert factor("speech", None, 3) == 1


_part = st.floats(0, 1)
_PARTS = (
    *("text", "coverage", "semantic", "temporal", "importance"),
    *("before", "after", "tree", "session", "best_row", "named"),
)
_named_parts = st.fixed_dictionaries(dict.fromkeys(_PARTS, _part) | {"brevity": st.floats(1e-9, 10)})


def _whole(parts: dict[str, float], best: float) -> float:
    """A score as ranking puts it together."""
    own = scoring.relevance(
        text=scoring.text_part(bm25=parts["text"], coverage=parts["coverage"]), semantic=parts["semantic"]
    )
    lent = scoring.lent(before=parts["before"], after=parts["after"], tree=parts["tree"], length=10 / parts["brevity"])
    context = scoring.in_context(
        own=own, lent=lent, session=parts["session"], session_best=parts["best_row"], named=parts["named"]
    )
    return scoring.total(context=context, best=best, temporal=parts["temporal"], importance=parts["importance"])


@given(parts=_named_parts, best=_part)
def test_a_score_stays_within_the_scale(parts: dict[str, float], best: float) -> None:
    assert 0 <= _whole(parts, best) <= 1 + 1e-12


@given(parts=_named_parts, best=_part, name=st.sampled_from([*_PARTS, "brevity"]), higher=_part)
def test_a_score_never_falls_when_a_part_rises(parts: dict[str, float], best: float, name: str, higher: float) -> None:
    raised = parts | {name: max(parts[name], higher)}
    assert _whole(raised, best) >= _whole(parts, best) - 1e-12


@given(days=st.floats(-1e6, 1e6, allow_nan=False), accesses=st.integers(-5, 10**9), accessed=st.floats(-1e6, 1e6))
def test_a_score_is_finite_for_any_clock(days: float, accesses: int, accessed: float) -> None:
    fresh = scoring.temporal(
        now=NOW,
        created_at=NOW - timedelta(days=days / 2),
        last_accessed_at=NOW - timedelta(days=accessed / 2),
        accesses=accesses,
    )
    assert math.isfinite(fresh)
    assert 0 <= scoring.total(context=0.5, best=0.5, temporal=fresh, importance=0.9) <= 1


@given(context=_part, best=_part)
def test_freshness_counts_whole_for_the_best_row_and_less_for_a_worse_one(context: float, best: float) -> None:
    share = scoring.within(context=context, best=best)
    assert 0 <= share <= 1
    if 0 < best <= context:
        assert share == 1
    if context < 0.9 * best:
        assert share < 0.5


@given(place=st.integers(0, 10**6))
def test_a_crowd_loses_ever_more_and_never_all(place: int) -> None:
    here, next_one = scoring.crowd_factor(place), scoring.crowd_factor(place + 1)
    assert PROFILE.crowd_least <= next_one <= here <= 1
    assert scoring.crowd_factor(PROFILE.crowd_free - 1) == 1


def test_a_new_row_that_hardly_fits_stands_below_an_old_one_that_does() -> None:
    exact = scoring.total(context=0.5, best=0.5, temporal=0, importance=0.6)
    fresh = scoring.total(context=0.2, best=0.5, temporal=1, importance=0.6)
    assert exact > fresh
    near = scoring.total(context=0.45, best=0.5, temporal=1, importance=0.6)
    assert near > exact


def test_without_a_known_coverage_bm25_is_the_text_part() -> None:
    assert scoring.text_part(bm25=0.7, coverage=None) == 0.7
    assert scoring.text_part(bm25=0.6, coverage=1.0) > scoring.text_part(bm25=0.6, coverage=0.2)


def test_an_answer_borrows_more_from_its_question_than_the_other_way_round() -> None:
    short, page = PROFILE.lent_length, 10 * PROFILE.lent_length
    assert scoring.lent(before=1, after=0, tree=0, length=short) > scoring.lent(before=0, after=1, tree=0, length=short)
    assert scoring.lent(before=1, after=1, tree=1, length=short) == scoring.most_lent()
    assert scoring.lent(before=1, after=1, tree=0, length=page) == pytest.approx(scoring.most_lent() / 10)
    # A summary is long and says what its messages say.
    assert scoring.lent(before=0, after=0, tree=1, length=page) == scoring.lent(before=0, after=0, tree=1, length=0)
