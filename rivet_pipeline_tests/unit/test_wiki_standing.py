"""Which sentences can stand on a page by themselves, and what an answer makes of what was said before it."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from rivet_pipeline.wiki.addressed import addresses_machine
from rivet_pipeline.wiki.markdown import short_title
from rivet_pipeline.wiki.miner import PREFERENCES_TITLE, DeterministicMiner, names_in
from rivet_pipeline.wiki.standing import points_of, stands_alone
from rivet_pipeline.wiki.turns import read_turns
from rivet_pipeline.wiki.types import MineRequest
from rivet_pipeline.wiki.wordings import PRONOUN, REFUTES

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
        ("Intervals on Thursday and a long run on Sunday, every week.", "user"),
        ("No note is deleted on the device before the server has confirmed it.", "user"),
        ("La grille des exposés compte 20 points.", "assistant"),
        ("Il piatto in ceramica costa 240 euro.", "assistant"),
        ("As tabelas são copiadas em três minutos.", "assistant"),
        # The first words are what it speaks of, and nothing that an agent has done.
        ("Removed files are kept 30 days.", "assistant"),
        ("Installed packages of the box need 4 GB.", "assistant"),
        ("Logging of the importer goes to Loki now, and no longer to files.", "assistant"),
        ("Logging moves to Loki now, decided.", "assistant"),
        ("Monitoring uses Loki now.", "assistant"),
        ("Testing covers the importer now.", "assistant"),
        ("Added sugar makes the sourdough sticky.", "user"),
        ("Logging of the importer works for all hosts now.", "user"),
        # A table and a host.
        ("The user table has 4 million rows.", "assistant"),
        ("The user has no password in the database of the shop.", "assistant"),
        ("Logs go to loki.example.eu over TLS.", "assistant"),
        ("The cluster of TU Berlin has 40 nodes.", "assistant"),
        # Prose about a path and options.
        ("/health returns 200 when the database answers.", "assistant"),
        ("/var/lib/restic holds 40 GB of snapshots.", "assistant"),
        ("The importer takes --dry-run and --limit.", "assistant"),
        ("With --dry-run the importer prints what --limit leaves out.", "assistant"),
        ("The nightly report runs every day at 06:30.", "assistant"),
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
        # Said to somebody who is not the page's reader.
        ("SQLite is in the standard library, so your rule is kept.", "assistant"),
        # No prose.
        ("/run pytest tests/scrape/test_scrape.py", "user"),
        ("/usr/bin/aider test_coder.py takes the arguments of the run", "assistant"),
        ("python code: `Scraper`, `scrape`", "assistant"),
        ("restic backup --tag nightly --exclude cache", "assistant"),
        ("/compact the last three days", "user"),
        # What is said of each of many holds on its day only.
        ("The importer has 40 open tickets today, one for each host.", "assistant"),
        ("Every host had two restarts since yesterday.", "assistant"),
        ("The user wants a limit of 12 N for the gripper.", "assistant"),
        ("The user has asked for a limit of 12 N.", "assistant"),
        # What an agent does now, did, or is going to do.
        ("Locating the save command now, read-only.", "assistant"),
        ("Checking whether the cache of the importer is warm now.", "assistant"),
        ("Changed the limit of the gripper, which is 12 N.", "assistant"),
        ("Implemented the shadow collision by casting rays.", "assistant"),
        ("Updated tests so that the mailer has retries.", "assistant"),
        ("Installed packages which the importer needs.", "assistant"),
        ("Running the full suite of the importer now.", "user"),
        ("Running the full suite now.", "user"),
        ("We'll create a new test for the scraper.", "assistant"),
        ("Runs the command to commit the changes.", "assistant"),
        # Other languages.
        ("Je pense que Redis suffirait.", "assistant"),
        ("On garde cette grille.", "user"),
        ("C'est noté, pas plus de vingt lignes.", "assistant"),
        ("La page est trop lente.", "user"),
        ("Lo scarico è troppo alto.", "user"),
        ("Talvez o pgloader converta os tipos.", "assistant"),
        ("Die Regentonnen waren nach fünf Tagen leer.", "user"),
    ],
)
def test_a_scrap_a_guess_an_order_and_a_complaint_do_not(text: str, voice: str) -> None:
    assert not stands_alone(text, voice)


def test_scraps_before_a_sentence_are_left_out() -> None:
    assert points_of("Nice. Fix both. Names: normalise them to NFC, but never rename a file.")[-1] == (
        "Normalise them to NFC, but never rename a file."
    )


@pytest.mark.parametrize(
    "text",
    [
        "Decision: the beef cheeks stay approx. three hours in the oven.",
        "Decision: the box costs 40 euros incl. the shipping to Kiel.",
        "Decision: the box costs 40 euros incl. VAT and shipping to Kiel.",
        "Decision: the mixers resp. ovens run on their own fuse.",
        "The box needs approx. 40 euros of stamps to Kiel.",
        "Approx. 40 euros of stamps go on the box to Kiel.",
    ],
)
def test_an_abbreviation_ends_no_sentence(text: str) -> None:
    assert points_of(text) == [text]


def test_an_answer_is_no_abbreviation() -> None:
    assert points_of("No. The box to Kiel needs stamps.") == ["The box to Kiel needs stamps."]


def test_people_begin_sentences_small() -> None:
    assert points_of("The oven is hot enough. the bread goes in at nine.")[-1] == "The bread goes in at nine."


@pytest.mark.parametrize(
    "end",
    [
        "fixed at 4096",
        "fixed for 2026",
        "fixed until May",
        "fixed to 4096",
        "fixed for May",
        "fixed to the 3rd",
        "fixed per tenant",
        "fixed by law",
    ],
)
def test_what_is_set_is_not_repaired(end: str) -> None:
    told = claims(
        "Gripper driver",
        "assistant: The gripper driver can't run on Windows.",
        f"assistant: The page size of the gripper driver is {end}.",
    )
    assert "The gripper driver can't run on Windows." in told


@pytest.mark.parametrize(
    "end", ["fixed", "fixed for good", "fixed for all users", "fixed at last", "fixed to run there"]
)
def test_what_is_repaired_is_not_told_as_broken(end: str) -> None:
    broken = "assistant: The gripper driver can't run on Windows."
    assert "can't" not in "".join(claims("Gripper driver", broken, f"assistant: The gripper driver is {end}."))


def standing(text: str) -> list[str]:
    """What a person who says this wants everywhere and always."""
    line = f"- 2026-03-02T11:00Z pi/user: {text}"
    answer = DeterministicMiner().mine(MineRequest(uuid4(), line, NOON, NOON, "Gripper driver", "pi"))
    return [claim.text for draft in answer.drafts if draft.title == PREFERENCES_TITLE for claim in draft.claims]


def test_an_order_is_for_ever_where_its_introduction_says_so() -> None:
    assert standing("I think: update the table in future releases.") == []
    assert standing("Remember for next time: ask before you prune volumes.") == ["Ask before you prune volumes."]


def test_a_person_who_begins_with_a_doing_wants_something() -> None:
    wish = "Logging goes to Loki from now on for all services."
    assert standing(wish) == [wish]
    wish = "Removed pages are never deleted from now on."
    assert standing(wish) == [wish]
    decided = "Logging moves to Loki now, decided."
    assert claims("Logging", f"user: {decided}") == [decided]


def test_what_is_preferred_from_now_on_is_preferred_everywhere() -> None:
    wish = "From now on I prefer metric units in all the charts."
    assert standing(wish) == [wish]
    assert standing("I prefer metric units in all the charts.") == []
    wish = "By principle I prefer the smaller of these boards."
    assert standing(wish) == [wish]


@pytest.mark.parametrize(
    "text",
    ["I prefer the old layout of this page, as always.", "I hate the import that runs every time."],
)
def test_how_often_something_is_so_makes_no_standing_wish(text: str) -> None:
    assert standing(text) == []


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


@pytest.mark.parametrize(
    "answer",
    [
        "Yes, but show me the figures before.",
        "Not yet.",
        "Why 200?",
        "Sì, prima di tutto le misure.",
        "Yes, just not in the driver of the gripper that is in use.",
    ],
)
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


PROPOSAL = "assistant: I propose a watchdog window of 200 ms for the gripper driver."


@pytest.mark.parametrize(
    "answer",
    [
        "Yes, do that.",
        "Agreed: 200 ms is good.",
        "200 ms is good.",
        "Go ahead.",
        "All four, yes.",
        "Good idea.",
        "Fine with me.",
        "Sounds good!",
        "Vale, adelante.",
        "Ok",
        "Ja, prima.",
        "Yes, the non-blocking one.",
        "Yes, just go ahead and put it into the driver of the gripper.",
    ],
)
def test_words_of_consent_are_an_agreement(answer: str) -> None:
    (told,) = claims("Gripper driver", "user: What now?", PROPOSAL, f"user: {answer}")
    assert told.startswith("I propose a watchdog window of 200 ms for the gripper driver. Agreed: ")


@pytest.mark.parametrize(
    "answer",
    ["Show me the right column.", "Go to the next file.", "The good old cache is slow.", "Right column of the table."],
)
def test_a_word_of_consent_inside_a_sentence_is_no_agreement(answer: str) -> None:
    told = claims("Gripper driver", "user: What now?", PROPOSAL, f"user: {answer}")
    assert [text for text in told if "Agreed" in text] == []


def test_a_surprise_refutes_nothing_and_a_shout_of_no_does() -> None:
    said = "The gripper driver holds 12 N at 48 degrees."
    assert REFUTES.search("Really?! Great work.") is None
    assert claims("Gripper driver", f"assistant: {said}", "user: Really?! Great work.") == [said]
    assert claims("Gripper driver", f"assistant: {said}", "user: What?! I measured 9.") == []


def test_a_line_with_an_impossible_time_is_a_plain_one() -> None:
    line = "- 2026-13-45T00:00Z pi/assistant: The gripper driver holds 12 N."
    (turn,) = read_turns(MineRequest(uuid4(), line, NOON, NOON, "Gripper driver", "pi"))
    assert (turn.voice, turn.when) == ("assistant", NOON)
    assert "holds 12 N" in turn.raw[0]


@pytest.mark.parametrize("signs", ["-", "'", "`", " ", "- ", "a-", "a "])
def test_a_run_of_signs_hides_no_sentence_and_makes_no_pronoun(signs: str) -> None:
    assert PRONOUN.search(f"{signs * 16}The port is 8437.") is None
    assert PRONOUN.search(f"{signs * 10_000} the port is 8437.") is None


@pytest.mark.parametrize(
    "text", ["- it stops.", "Then `they` stop.", "The don't-care bit - those are low.", "It's low."]
)
def test_a_pronoun_among_the_first_words_is_found(text: str) -> None:
    assert PRONOUN.search(text) is not None


def test_long_texts_are_read_to_their_end() -> None:
    assert points_of(f"{'ok. ' * 5_000}The gripper driver holds 12 N.")[-1] == "The gripper driver holds 12 N."
    assert points_of(f"{'No' * 10_000}, e.g. Mr. Smith holds it.")
    assert names_in([f"{'a ' * 10_000}`{'a ' * 90}` and gripper_driver"]) == ("gripper_driver",)
    assert not addresses_machine(f"attention{' ' * 20_000}to nobody")
    assert addresses_machine(f"attention{' ' * 2_000}to the miner : keep this")
    shell = f'{"git commit " * 2_000}; git commit -qam "Gripper driver waits for an interrupt"'
    when = "2026-03-02T11:00Z"
    (turn,) = read_turns(MineRequest(uuid4(), f"- {when} pi/tool: Bash: {shell}", NOON, NOON, "Gripper", "pi"))
    assert turn.commits == ["Gripper driver waits for an interrupt"]


@pytest.mark.parametrize(
    ("proposal", "answer"),
    [
        ("Ich schlage einen monatlichen Export per Cronjob vor.", "Einverstanden, aber nicht per Cronjob, sondern so."),
        (
            "I suggest a monthly export of the hours by cron.",
            "Agreed, but only for the hours that were approved by us.",
        ),
        ("Je propose un export mensuel des heures par cron.", "D'accord, mais seulement les heures qui sont validées."),
    ],
)
def test_an_agreement_with_a_condition_is_none(proposal: str, answer: str) -> None:
    assert not any(proposal in claim for claim in claims("Export", f"assistant: {proposal}", f"user: {answer}"))


@pytest.mark.parametrize(
    ("proposal", "answer"),
    [
        ("Let's cut the taper: no run of more than 12 km.", "Agreed."),
        ("Je propose deux séances sur la Terreur.", "D'accord, on fait comme ça."),
        ("Per il bagno consiglio piastrelle grandi.", "Va bene."),
        ("Recomendo usar o pgloader.", "Combinado."),
    ],
)
def test_proposals_are_agreed_to_in_other_languages(proposal: str, answer: str) -> None:
    (claim,) = claims("Taper, Terreur, bagno, pgloader", f"assistant: {proposal}", f"user: {answer}")
    assert claim.startswith(f"{proposal} Agreed: ")


def test_a_result_is_kept_without_the_label_that_speaks_to_somebody() -> None:
    said = "Summary for your notes: the resets of the push came from the MTU."
    assert claims("Push: resets", f"assistant: {said}") == ["the resets of the push came from the MTU."]


def test_a_decision_that_says_so_is_no_wish_for_ever() -> None:
    text = "Decision: replicas of the checkout need a review from now on."
    assert standing(text) == []
    assert claims("Checkout replicas", f"user: {text}") == [text]


def test_what_somebody_settles_behind_an_ok_is_a_decision() -> None:
    said = "OK: a house with three bedrooms near Carnac from 1 to 15 August."
    assert claims("Summer holiday", f"user: {said}") == ["A house with three bedrooms near Carnac from 1 to 15 August."]


def test_a_wish_that_does_not_name_the_subject_is_not_on_its_page() -> None:
    assert claims("Gripper calibration", "user: I never want merges on a Friday afternoon in the harbour.") == []


def test_a_new_page_says_something_of_its_subject() -> None:
    """What somebody tells is of the session; alone it makes no page."""
    told = "user: The old cable had a kink, from when the box was moved in August."
    assert claims("Mirror of brine", told) == []
    assert len(claims("Mirror of brine", told, "assistant: The mirror of brine runs on disk A.")) == 2


def test_a_name_is_kept_whole() -> None:
    assert names_in(["We take Callaway-Sant'Anna here."]) == ("Callaway-Sant'Anna",)
    assert names_in(["The kids use AdGuard Home on heron."]) == ("AdGuard Home", "AdGuard")


def test_names_in_capitals_make_no_sentence_german() -> None:
    assert names_in(["The MIT licence of the box from Red Hat is fine."]) == ("Red Hat",)
    assert names_in(["Die Regentonnen von Herrn Weber sind leer."]) == ()
