"""When two sentences say the same, whatever their words."""

from __future__ import annotations

import pytest

from rivet_pipeline.wiki.refusals import says_the_same

SAID = "The importer listens on port 8437 of the host."


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (SAID.upper(), True),
        ("Port 8437 of the host is where the importer is listening", True),
        ("The importer listens on port 9000 of the host.", False),
        ("The importer does not listen on port 8437 of the host.", False),
        ("The importer doesn\u2019t listen on port 8437 of the host.", False),
        ("The gateway listens on port 8437 of the router.", False),
        ("The importer listens on port 8437 of the host for readings of every gauge along the river.", False),
    ],
)
def test_sentences_that_say_the_same(other: str, same: bool) -> None:
    assert says_the_same(SAID, other) is same
    assert says_the_same(other, SAID) is same


def test_a_sentence_of_two_words_is_compared_word_by_word_only() -> None:
    assert not says_the_same("It polls gauges", "It polls gauges!")
