"""The tagger that needs no model: what it finds, what it leaves, and that it always says the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.tags.keyphrases import KeyphraseTagger
from rivet_pipeline.tags.literals import read_literal
from rivet_pipeline.tags.types import MAX_PROPOSALS, TagRequest

TAGGER = KeyphraseTagger()


def statements(*texts: str, who: str = "ada/user") -> str:
    return "\n".join(["Period 2026-03-01T09:00Z", "", "**A heading**", *(f"- {who}: {text}" for text in texts)])


def found(text: str, title: str = "", vocabulary: Any = (), current: Any = ()) -> list[str]:
    request = TagRequest(
        text, title, vocabulary=list(map(read_literal, vocabulary)), current=list(map(read_literal, current))
    )
    return [str(one.literal) for one in TAGGER.propose(request).proposals]


def test_a_subject_that_is_spoken_of_repeatedly_is_found_in_any_inflection() -> None:
    text = statements("We cached the answers.", "The caches were cold.", "Nobody likes tea.")
    assert found(text) == ["topic:caching"]
    assert found(statements("We cached the answers.", "Nobody likes tea.")) == []


def test_the_title_makes_a_single_mention_enough() -> None:
    assert found(statements("The cache was cold."), title="Cache misses at night") == ["topic:caching"]


def test_what_only_commands_mention_does_not_count() -> None:
    calls = statements("Bash: redis-cli PING", "Bash: redis-cli INFO", "Bash: redis-cli MONITOR", who="ada/tool")
    assert found(calls) == []
    assert found(calls + "\n- ada/assistant: Redis answers.") == ["topic:redis"]


def test_the_accepted_vocabulary_comes_first_and_is_used_as_it_is_written() -> None:
    text = statements("The quay wall is wet.", "Quay wall again.", "And the quay wall.", "The cache.", "A cache.")
    assert found(text, vocabulary=["topic:quay-wall", "topic:crane"]) == ["topic:quay-wall", "topic:caching"]


def test_a_project_is_proposed_to_a_session_without_one_only() -> None:
    text = statements("The shop is slow.", "Restart the shop.", "The shop answers.")
    assert "project:shop" in found(text, vocabulary=["project:shop"])
    assert found(text, vocabulary=["project:shop"], current=["project:depot"]) == []


def test_what_the_session_has_already_is_not_proposed() -> None:
    text = statements("The cache was cold.", "The cache is warm.")
    assert found(text, current=["topic:caching"]) == []


def test_a_phrase_of_the_title_that_the_text_comes_back_to_is_a_topic() -> None:
    text = statements("The crane schedule is wrong on Mondays.", "Fixed.")
    assert found(text, title="Crane schedule: wrong on Mondays") == ["topic:crane-schedule"]
    assert found(statements("Tea."), title="Crane schedule: wrong on Mondays") == []


def test_a_title_that_is_somebodys_first_words_gives_no_phrases() -> None:
    text = statements("The crane woke me.", "Crane again.", "And the crane.")
    assert found(text, title="The crane woke me. Please look.") == []


def test_only_one_statement_is_what_a_title_was_made_of() -> None:
    text = statements("Queue depth grows.", "Queue depth is 40 now.", "Queue depth fell.", "Lunch?")
    assert "topic:queue-depth" in found(text, title="Queue depth")


def test_the_statement_that_a_title_was_made_of_says_nothing_more() -> None:
    assert found(statements("Translate hello to Spanish", "Hola."), title="Translate hello to Spanish") == []


def test_a_question_behind_a_subject_leaves_the_subject() -> None:
    text = statements("The churn model is too good.", "With the split the churn model is worse.")
    assert found(text, title="Churn model: why is the AUC 0.97?") == ["topic:churn-model"]


def test_the_words_of_identifiers_and_paths_are_not_spoken_of() -> None:
    text = statements("days_since_last_invoice is 0.8.", "So days_since_last_invoice leaks.", "See deploy/invoice too.")
    assert found(text) == []


def test_names_said_beside_each_other_are_no_path() -> None:
    assert found(statements("We use CI/CD here.", "Docker/Podman runs.", "Docker/Podman.", "CI/CD too.")) == [
        "topic:ci",
        "topic:docker",
    ]
    assert found(statements("See docker/podman.", "And ./Docker/Podman.", "docker/podman again.")) == []


def test_a_title_that_begins_with_a_long_word_leaves_the_statements() -> None:
    text = statements("The crane schedule is wrong.", "Crane schedule again.")
    assert found(text, title=f"{'x' * 45} crane schedule") == ["topic:crane-schedule"]


def test_a_question_of_english_is_no_name() -> None:
    text = statements("The builds hang.", "Why do builds hang?", "Why?", "And why do the builds hang?")
    assert found(text, title="Why do builds hang") == ["topic:builds-hang"]
    text = statements("du lies.", "Why?", "Why du?", "And why du again?")
    assert "topic:why" not in found(text, title="Why du shows more than df")
    text = statements("The backups work.", "Backups run at night.", "How do backups run?")
    assert found(text, title="How do backups work on the NAS") == ["topic:backup"]


def test_a_word_in_capitals_is_a_name_and_no_preposition() -> None:
    text = statements("The DI container is slow.", "The DI container again.")
    assert found(text, title="DI container for the importer") == ["topic:di-container"]
    text = statements("The to-do list is long.", "The to-do list again.")
    assert found(text, title="To-do list of the team") == ["topic:to-do-list"]
    text = statements("La copia de seguridad falla.", "La copia de seguridad otra vez.")
    assert found(text, title="LA COPIA DE SEGURIDAD Y LA TIENDA") == ["topic:copia-de-seguridad"]


def test_the_words_of_a_project_of_several_words_may_name_a_subject() -> None:
    text = statements("The lantern moves.", "A lantern puzzle, then.", "The puzzle is dark.")
    assert found(text, title="Lantern puzzle, day 1", current=["project:lantern-jam"]) == ["topic:lantern-puzzle"]


def test_a_name_of_the_title_needs_fewer_statements_than_a_word() -> None:
    assert found(statements("We take Bevy.", "With Bevy it is easy."), title="A puzzle in Bevy") == ["topic:bevy"]
    assert found(statements("We take bricks.", "With bricks it is easy."), title="A puzzle in bricks") == []


def test_folders_that_every_project_has_are_not_proposed_as_projects() -> None:
    text = statements("The repo is old.", "Clone the repo.", "Test the repo.", "Test it.", "And test again.")
    assert found(text, vocabulary=["project:repo", "project:test", "project:tmp"]) == []


def test_titles_of_other_languages_are_cut_at_their_own_words() -> None:
    for title, text, tags in [
        (
            "Préparer le cours sur la Révolution française",
            statements("Une séquence sur la Révolution française."),
            ["topic:révolution-française"],
        ),
        (
            "Choix de la file d'attente",
            statements("La file d'attente est lente.", "Il faut une file d'attente."),
            ["topic:file-d'attente"],
        ),
        (
            "Copia de seguridad de la tienda",
            statements("La copia de seguridad falla.", "Otra copia de seguridad."),
            ["topic:copia-de-seguridad"],
        ),
        (
            "経費精算アプリの通知をメールからSlackに変更",
            statements("Slackへの通知を提案します。", "通知は9時です。", "Slackのトークン。"),
            ["topic:slack", "topic:通知"],
        ),
    ]:
        assert found(text, title=title) == tags


def test_words_in_capitals_are_not_ordinary_words() -> None:
    assert found(statements("A smart idea.", "So smart.", "Very smart indeed.")) == []
    assert found(statements("SMART reports errors.", "Read the SMART values.")) == ["topic:disk-failure"]


words = st.lists(
    st.sampled_from(["cache", "redis", "the", "slow", "query", "crane", "CSV", "2026", "a/b", "\n- x:", "ÄÖ"]),
    max_size=60,
)


@given(words, words)
def test_it_always_says_the_same_and_never_too_much(text: list[str], title: list[str]) -> None:
    request = TagRequest(" ".join(text), " ".join(title))
    first = TAGGER.propose(request).proposals
    assert first == KeyphraseTagger().propose(request).proposals
    assert len(first) <= MAX_PROPOSALS
    assert len({one.literal for one in first}) == len(first)
    for one in first:
        assert read_literal(str(one.literal)) == one.literal
        assert one.confidence is not None
        assert 0 < one.confidence < 1


@given(st.text("%🎉+#.-_/*\u2019' \u3000", min_size=1, max_size=12))
def test_a_value_without_a_word_matches_nothing(value: str) -> None:
    text = statements("The cache is cold. 🎉", "100 % of it. 🎉🎉", "Cold again: % and 🎉!")
    try:
        literal = read_literal(f"topic:{value}")
    except InvalidInputError:
        return
    assert str(literal) not in found(text, title="Cache 🎉 100 %", vocabulary=[str(literal)])


def test_signs_and_emoji_in_the_vocabulary_leave_a_leaf_without_tags() -> None:
    text = statements("Nobody likes tea.", "The quay is wet.", "It rains.")
    assert found(text, title="Tea and rain", vocabulary=["topic:%", "topic:🎉🎉", "🎉:🎉"]) == []


def test_the_number_of_a_numbered_thing_is_part_of_its_tag() -> None:
    text = statements("The outline of chapter 4.", "Chapter 4 is due in May.", "And chapter 4 again, all of chapter 4.")
    assert "topic:chapter-4" in found(text, title="Chapter 4 outline")
    assert found(text, title="Deadlines 4") == []


def test_things_of_different_numbers_have_different_tags() -> None:
    for number in ("3.1", "3.2"):
        text = statements(*[f"Chapter {number} is due in May."] * 4)
        assert found(text, title=f"Chapter {number} outline") == [f"topic:chapter-{number}"]
    for gauge in ("TG-04", "TG-07"):
        text = statements(*[f"The gauge {gauge} was offline at night."] * 4)
        assert f"topic:gauge-{gauge.casefold()}" in found(text, title=f"Gauge {gauge} in Tangholm")
