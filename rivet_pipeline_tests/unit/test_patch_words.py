"""How a patch's page was found has words for each way there is."""

from typing import get_args

from rivet_pipeline.assets.reporting import FOUND
from rivet_pipeline.wiki.types import Decision


def test_every_way_to_find_a_page_has_words_of_its_own() -> None:
    assert set(FOUND) == set(get_args(Decision))
    assert len(set(FOUND.values())) == len(FOUND)
