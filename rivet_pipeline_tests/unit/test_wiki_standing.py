"""Which sentences can stand on a page by themselves, and what an answer makes of what was said before it."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from rivet_pipeline.wiki.markdown import short_title
from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.standing import points_of, stands_alone
from rivet_pipeline.wiki.types import MineRequest

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def claims(title: str, *said: str) -> list[str]:
    """What a leaf of these `voice: text` lines brings to pages."""
    lines = [f"- 2026-03-02T11:{place:02}Z pi/{line}" for place, line in enumerate(said)]
    answer = DeterministicMiner().mine(MineRequest(uuid4(), "\n".join(lines), NOON, NOON, title, "pi"))
    return [claim.text for draft in answer.drafts for claim in draft.claims]


@pytest.mark.parametrize(
    ("text", "voice"),
    [
        ("The force limit of the gripper is 12 N.", "assistant"),
        ("We chose quintic splines, because the jerk spills the soup.", "user"),
        ("Keep 14 days of backups only, not 30.", "user"),
        ("No blocking calls in the control loop.", "user"),
        ("The decision of 3 May is reversed, today, 24 May 2026.", "user"),
        ("Cada pedido lleva una clave única.", "user"),
        ("土曜日の注文締切は21時にします。", "user"),
    ],
)
def test_a_whole_sentence_stands(text: str, voice: str) -> None:
    assert stands_alone(text, voice)


@pytest.mark.parametrize(
    ("text", "voice"),
    [
        ("It stops when the bus is busy.", "assistant"),
        ("No, not the cron job: the systemd timer!", "user"),
        ("Postgres 17 runs beside the old one.", "assistant"),
        ("The report comes tomorrow at 06:30.", "assistant"),
        ("Two families: a fixed port in the tests; a date", "assistant"),
        ("The cause is most likely the proxy.", "assistant"),
        ("I noted the limit of 12 N in docs/gripper.md.", "assistant"),
        ("Load the readings into the database and commit.", "user"),
        ("The oven page takes nearly two seconds.", "user"),
        ("What is the limit of the gripper?", "user"),
        ("The gripper ran from 10:15 into a lock.", "assistant"),
        ("Creo que es la impresora de la cocina.", "assistant"),
        ("たぶん金曜の夜の仕込みを遅らせれば大丈夫です。", "assistant"),
        ("The gripper opens when `jaws", "assistant"),
    ],
)
def test_a_scrap_a_guess_an_order_and_a_complaint_do_not(text: str, voice: str) -> None:
    assert not stands_alone(text, voice)


def test_scraps_before_a_sentence_are_left_out() -> None:
    assert points_of("Nice. Fix both. Names: normalise them to NFC, but never rename a file.")[-1] == (
        "Normalise them to NFC, but never rename a file."
    )


def test_what_is_refuted_is_left_out_and_what_is_agreed_to_is_a_decision() -> None:
    told = claims(
        "Gripper driver",
        "user: The gripper opens by itself.",
        "assistant: The gripper driver resets because the bus is busy.",
        "user: No. The bus was idle, I measured.",
        "assistant: I propose a watchdog window of 200 ms for the gripper driver.",
        "user: Agreed.",
    )
    assert told == ["I propose a watchdog window of 200 ms for the gripper driver. Agreed: \u201cAgreed.\u201d"]


@pytest.mark.parametrize("answer", ["Yes, but show me the figures before.", "Not yet.", "Why 200?"])
def test_a_reservation_is_no_agreement(answer: str) -> None:
    proposal = "assistant: I propose a watchdog window of 200 ms for the gripper driver."
    assert claims("Gripper driver", "user: What now?", proposal, f"user: {answer}") == []


def test_an_agent_takes_its_own_words_back() -> None:
    told = claims(
        "Gripper driver",
        "assistant: The gripper driver reads the sensor every 10 ms, measured at the pin.",
        "user: Are you sure?",
        "assistant: My mistake, the trace was of another pin.",
    )
    assert told == []


def test_a_commit_is_quoted_and_supersedes_what_was_found_before_it() -> None:
    told = claims(
        "Gripper driver",
        "assistant: The gripper driver uses a busy loop of 10 ms.",
        'tool: Bash: git commit -qam "Gripper driver waits for an interrupt" && git push -q \u2192 main 1f0c2aa',
        "assistant: The gripper driver wakes up within 40 \u00b5s and holds 12 N.",
    )
    assert told == [
        "Committed: \u201cGripper driver waits for an interrupt\u201d.",
        "The gripper driver wakes up within 40 \u00b5s and holds 12 N.",
    ]
    failed = (
        'tool: Bash: git commit -qam "Gripper driver waits for an interrupt" \u2192 exit 1 \u00b7 nothing to commit'
    )
    assert claims("Gripper driver", failed) == []


def test_a_sentence_that_does_not_name_the_subject_stays_out() -> None:
    assert claims("Gripper driver", "assistant: The oven holds 230 degrees for 20 minutes.") == []


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Gripper calibration", "Gripper calibration"),
        (f"The gripper was offline on 2 May. {'It sent nothing for hours ' * 4}", "The gripper was offline on 2 May."),
        (f"{'word ' * 30}", f"{'word ' * 13}word …"),
    ],
)
def test_the_title_of_a_session_is_cut_where_it_can_be_read(title: str, shown: str) -> None:
    assert short_title(title) == shown
