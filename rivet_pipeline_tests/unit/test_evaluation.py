"""Question sets as they are read, and the figures of an evaluation."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.evaluation import KEPT_RUNS, Asked, drops, keep, keep_run, lost, measure, report
from rivet_pipeline.retrieval.evaluation_sets import read_locomo, read_longmemeval, read_questions

LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Bob",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "Look at this!", "blip_caption": "a red kite"},
                {"speaker": "Bob", "dia_id": "D1:2", "text": "Lovely."},
            ],
            "session_2_date_time": "12:09 am on 9 May, 2023",
            "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "I sold my boat."}],
            "session_3_date_time": "1:00 pm on 10 May, 2023",
        },
        "qa": [
            {"question": "What did Ada show?", "evidence": ["D1:1"], "category": 4},
            {
                "question": "What of the boat, by odd evidence?",
                "evidence": ["D8:6; D9:17", "D", "D:11:26", "D7:1", "D2:1"],
                "category": 1,
            },
            {"question": "Adversarial", "evidence": ["D2:1"], "category": 5},
            {"question": "No evidence", "evidence": [], "category": 3},
        ],
    }
]

LONGMEMEVAL: list[dict[str, Any]] = [
    {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Which tea?",
        "question_date": "2023/05/28 (Sun) 19:47",
        "haystack_dates": ["2023/05/21 (Sun) 19:50"],
        "haystack_session_ids": ["s1"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "I only drink oolong.", "has_answer": True},
                {"role": "assistant", "content": "Noted."},
            ]
        ],
        "answer_session_ids": ["s1"],
    },
    {
        "question_id": "q2_abs",
        "question_type": "multi-session",
        "question": "Which coffee?",
        "question_date": "2023/06/28 (Wed) 10:00",
        "haystack_dates": ["2023/05/21 (Sun) 19:50", "2023/06/30 (Fri) 08:00"],
        "haystack_session_ids": ["s1", "s2"],
        "haystack_sessions": [
            [{"role": "user", "content": "I only drink oolong.", "has_answer": True}],
            [{"role": "user", "content": "Hello."}],
        ],
        "answer_session_ids": ["s1"],
    },
]


def written(folder: Path, data: object) -> Path:
    path = folder / "questions.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_locomo_file_becomes_a_conversation_a_session(tmp_path: Path) -> None:
    read = read_locomo(written(tmp_path, LOCOMO))
    assert [one.session_key for one in read.conversations] == ["locomo:conv-1:1", "locomo:conv-1:2"]
    first = read.conversations[0].turns[0]
    assert first.content == "Ada: Look at this! [picture: a red kite]"
    assert first.at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert read.conversations[1].turns[0].at == datetime(2023, 5, 9, 0, 9, tzinfo=UTC)
    kite, odd, adversarial, nothing = read.questions
    assert kite.turns == {"locomo:conv-1:1#D1:1"}
    assert (kite.agent, kite.now) == ("conv-1", datetime(2023, 5, 9, 0, 9, tzinfo=UTC))
    assert odd.turns == {"locomo:conv-1:2#D2:1"}
    assert read.skipped == 4
    assert not adversarial.counted
    assert (nothing.turns, nothing.sessions) == (frozenset(), frozenset())


def test_a_longmemeval_file_is_one_store_and_each_question_is_asked_at_its_own_date(tmp_path: Path) -> None:
    read = read_longmemeval(written(tmp_path, LONGMEMEVAL))
    assert [one.session_key for one in read.conversations] == ["longmemeval:s1", "longmemeval:s2"]
    asked, abstention = read.questions
    assert asked.turns == {"longmemeval:s1#0"}
    assert asked.sessions == {"longmemeval:s1"}
    assert asked.agent is None
    assert asked.now == datetime(2023, 5, 28, 19, 47, tzinfo=UTC)
    assert abstention.now == datetime(2023, 6, 28, 10, 0, tzinfo=UTC)
    assert (asked.counted, abstention.counted, abstention.group) == (True, False, "abstention")


def test_the_format_is_told_from_the_file(tmp_path: Path) -> None:
    assert read_questions(written(tmp_path, LOCOMO)).name == "locomo"
    assert read_questions(written(tmp_path, LONGMEMEVAL)).name == "longmemeval"


@pytest.mark.parametrize("data", [[], {}, [1], "text", [{"sample_id": "x"}], [{"question_id": "x"}], [{"other": 1}]])
def test_a_file_of_another_kind_is_one_line(tmp_path: Path, data: object) -> None:
    path = written(tmp_path, data)
    for read in (read_locomo, read_longmemeval, read_questions):
        with pytest.raises(InvalidInputError) as error:
            read(path)
        assert "\n" not in str(error.value)
        assert str(path) in str(error.value)


def test_what_is_no_json_or_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe not json")
    for path in (tmp_path / "x.json", tmp_path / "absent.json", tmp_path):
        with pytest.raises(InvalidInputError, match="name a LoCoMo file"):
            read_locomo(path)


def test_figures_of_one_list() -> None:
    figures = measure("turn", ["x", "a", None, "y", "z", "b"], {"a", "b"})
    assert figures["turn_recall@5"] == 0.5
    assert figures["turn_recall@10"] == 1
    assert figures["turn_any@5"] == 1
    # Places 2 and 6 of the list, against places 1 and 2 of a perfect one.
    assert figures["turn_ndcg@10"] == pytest.approx((0.63093 + 0.35621) / 1.63093, abs=1e-4)
    assert measure("turn", ["a"], set()) == {}
    assert measure("turn", [], {"a"})["turn_recall@10"] == 0


def asked(identity: str, figures: dict[str, float], *, counted: bool = True, latency: float = 10.0) -> Asked:
    return Asked(identity, "group" if counted else "apart", counted, "?", (), (), (), (), latency, None, figures)


def test_a_report_counts_what_counts_and_keeps_the_rest_apart() -> None:
    result = report(
        "set",
        [
            asked("1", {"turn_recall@10": 1.0}),
            asked("2", {"turn_recall@10": 0.0}, latency=30),
            asked("3", {}),
            asked("4", {"turn_recall@10": 1.0}, counted=False),
        ],
    )
    assert result.questions == 3
    assert result.figures["turn_recall@10"] == 0.5
    assert result.figures["judged"] == 2
    assert result.figures["latency_ms_p50"] == 10
    assert result.groups["apart"]["turn_recall@10"] == 1
    assert result.groups["all"]["turn_recall@10"] == pytest.approx(2 / 3, abs=1e-3)
    assert json.loads(json.dumps(result.as_dict()))["questions"] == 3


def test_a_drop_is_told_against_the_median_and_against_the_best() -> None:
    before = [{"turn_recall@10": value} for value in (0.80, 0.80, 0.81)]
    assert drops({"turn_recall@10": 0.79}, before) == []
    assert [drop.figure for drop in drops({"turn_recall@10": 0.76}, before)] == ["turn_recall@10"]
    # A slow decline: near the median of late, far below what it once was.
    decline = [{"turn_recall@10": value} for value in (0.74, 0.75, 0.74, 0.81)]
    assert drops({"turn_recall@10": 0.74}, decline)[0].best == 0.81
    assert drops({"turn_recall@10": 0.1}, []) == []
    assert drops({"latency_ms_p50": 900.0, "question_set": "demo"}, [{"latency_ms_p50": 1.0}]) == []


def test_a_file_that_asks_nothing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="asks nothing"):
        read_locomo(written(tmp_path, [{**LOCOMO[0], "qa": []}]))


def test_what_can_not_be_written_is_replaced_and_spoils_no_file(tmp_path: Path) -> None:
    entry = {
        **LONGMEMEVAL[0],
        "question_id": "q\ud800",
        "question": "Which \ud800 tea?\x00",
        "question_type": "t\udfff",
    }
    [question] = read_longmemeval(written(tmp_path, [entry])).questions
    assert (question.id, question.text, question.group) == ("q\ufffd", "Which \ufffd tea?\ufffd", "t\ufffd")
    found = replace(asked("1", {"turn_recall@10": 1.0}), text="lone \ud800")
    keep(report("set", [found]), tmp_path / "out")
    keep(report("set", [found]), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["set-figures.json", "set-questions.jsonl"]
    [line] = (tmp_path / "out" / "set-questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert "lone \ufffd" in line


def test_runs_are_kept_by_time_up_to_a_number_and_by_set(tmp_path: Path) -> None:
    began = datetime(2026, 3, 1, 3, 23, tzinfo=UTC)
    other = keep_run(report("other", [asked("1", {})]), tmp_path, began)
    result = report("set", [asked("1", {"turn_recall@10": 1.0})])
    written = [keep_run(result, tmp_path, began + timedelta(days=day)) for day in range(KEPT_RUNS + 2)]
    assert written[0].name == "set-20260301T032300.000000Z.jsonl"
    assert sorted(tmp_path.iterdir()) == sorted([other, *written[2:]])
    eastern = began.astimezone(timezone(timedelta(hours=9))) + timedelta(days=100)
    assert keep_run(result, tmp_path, eastern).name == "set-20260609T032300.000000Z.jsonl"


def test_two_kept_runs_tell_which_questions_lost(tmp_path: Path) -> None:
    figure = "turn_recall@10"
    values = {"same": (1.0, 1.0), "little": (1.0, 0.5), "wholly": (1.0, 0.0), "better": (0.0, 1.0)}
    before, now = (
        keep_run(
            report(
                "set",
                [
                    *(asked(name, {figure: both[place]}) for name, both in values.items()),
                    asked("apart", {figure: 1.0 - place}, counted=False),
                    asked(f"only in {place}", {figure: 0.0}),
                ],
            ),
            tmp_path,
            datetime(2026, 3, 1 + place, tzinfo=UTC),
        )
        for place in (0, 1)
    )
    fallen = lost(before, now, figure)
    assert fallen is not None
    assert [(one.id, one.before, one.now) for one in fallen] == [("wholly", 1.0, 0.0), ("little", 1.0, 0.5)]
    assert lost(now, now, figure) == []
    (tmp_path / "broken.jsonl").write_text("[]\n", encoding="utf-8")
    for unreadable in (tmp_path, tmp_path / "absent.jsonl", tmp_path / "broken.jsonl"):
        assert lost(unreadable, now, figure) is None
