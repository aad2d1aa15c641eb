"""Which conversations answer best: places of several signs, and words near in meaning."""

from __future__ import annotations

import numpy as np
import pytest

from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.retrieval.standing import WordVectors, places, score_near


def test_equal_figures_share_the_mean_of_their_places() -> None:
    assert places(np.array([0.2, 0.9, 0.2, 0.0])).tolist() == [1.5, 0.0, 1.5, 3.0]
    assert places(np.zeros(4)).tolist() == [1.5] * 4


def test_words_near_in_meaning_count_without_being_the_same() -> None:
    texts = ["She drank her usual coffee.", "The nurse at the hospital was kind.", "We paid the invoice on Monday."]
    near = score_near({"doctor": 1.0}, texts)
    assert near.argmax() == 1
    assert near[1] > 2 * near[[0, 2]].max()


def test_the_word_itself_counts_more_than_one_near_to_it_and_a_telling_word_more_than_a_common_one() -> None:
    same, like = score_near({"doctor": 1.0}, ["the doctor was there", "the physician was there"])
    assert same > like > 0
    boat, week = score_near({"kayak": 0.9, "week": 0.1}, ["the kayak was there", "the week was there"])
    assert boat > week


def test_figures_are_finite_for_texts_without_words() -> None:
    assert score_near({"kayak": 1.0}, ["", "?!"]).tolist() == [0.0, 0.0]
    scores = score_near({"kayak": 1.0}, ["", "a kayak", "x" * 5_000])
    assert np.isfinite(scores).all()
    assert scores[0] == 0 < scores[1]


def test_word_vectors_are_those_of_the_model_also_when_there_is_no_room() -> None:
    kept = WordVectors(most=3)
    for words in (["one", "two", "one"], ["three", "four"], ["one", "two", "three", "four", "five"], ["five"]):
        rows, table = kept.of(words)
        assert table[rows] == pytest.approx(WordLlamaEmbedder().embed(words), abs=1e-6)


def test_words_are_embedded_as_texts_are() -> None:
    words = ["taekwondo", "Zürich", "don't", "公园", "a" * 40]
    assert WordLlamaEmbedder().embed_words(words) == pytest.approx(WordLlamaEmbedder().embed(words), abs=1e-6)
    blank = WordLlamaEmbedder().embed_words(["", "word", ""])
    assert not blank[[0, 2]].any()
    assert np.linalg.norm(blank[1]) == pytest.approx(1)
