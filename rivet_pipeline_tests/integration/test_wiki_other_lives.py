"""Sessions about a kitchen, a thesis, a garden and a home server: what people talk of who write no programs.

Each is what a rule of the miner was wrong about: numbered things, openings, habits, orders for ever, decisions that
another session replaces.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.versions import WIKI_PIPELINE_VERSION
from rivet_pipeline.wiki.consolidate import consolidate
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.read import list_topics, read_topic
from rivet_pipeline_tests.integration.wiki_pages import check_page, mined, texts
from rivet_pipeline_tests.wiki_sessions import Session

LIVES = (
    Session(
        "2026-01-30",
        "DNS: Pi-hole or AdGuard on heron",
        "homelab",
        (
            ("u", "I want ad blocking DNS on heron. Which one?"),
            ("a", "I would take AdGuard Home, because the tablets of the kids need safe search per client."),
            ("u", "Yes, AdGuard. Upstream must be Quad9."),
            ("t", 'git commit -qam "AdGuard Home on heron, upstream Quad9" && git push → main 8f7e6d5'),
            ("a", "The router hands out 192.168.1.10 as DNS server by DHCP."),
        ),
    ),
    Session(
        "2026-02-10",
        "Chapter 3: which estimator for the panel data",
        "thesis",
        (
            ("u", "I need to settle the estimator for chapter 3. It is a panel of 142 towns."),
            ("a", "I recommend the estimator of Callaway and Sant'Anna with the never-treated towns as controls."),
            ("u", "Agreed. Use that."),
            ("u", "Decision for chapter 3: Callaway-Sant'Anna, and the old estimator only in the appendix."),
            ("a", "The panel of chapter 3 has 31 towns that were never treated."),
        ),
    ),
    Session(
        "2026-03-02",
        "Sourdough hydration for the winter flour",
        "recipes",
        (
            ("u", "My sourdough has been spreading flat since I switched to the new flour. What should I change?"),
            ("a", "The new flour absorbs less water. I would lower the hydration of the sourdough to 70 % first."),
            ("u", "Good, do that."),
            ("u", "Never cups in my recipes, ever."),
            ("u", "Let's keep 70 % hydration and the longer bulk of the sourdough."),
        ),
    ),
    Session(
        "2026-03-15",
        "Chapter 4 outline, deadlines",
        "thesis",
        (
            ("u", "Outline for chapter 4 please: the mechanisms. The survey has 2,310 answers."),
            ("a", "Outline of chapter 4: the survey, travel time or reliability, mediation, limits."),
            ("u", "Lindqvist wants chapter 4 by 30 April and the full draft by 15 June."),
            ("a", "The survey of chapter 4 has a response rate of 34 %."),
        ),
    ),
    Session(
        "2026-03-20",
        "Sourdough again: summer schedule",
        "recipes",
        (
            ("u", "So the sourdough decision from early March is off: back to 78 % hydration with Manitoba flour."),
            ("a", "With 14 % protein that is fine. Your oven has a timer."),
            ("u", "No it doesn't, that's the dishwasher. I use a smart plug."),
            ("u", "Decision: the sourdough is baked 20 minutes with the lid at 250 °C."),
        ),
    ),
    Session(
        "2026-04-02",
        "Deadline for chapter 4 moved",
        "thesis",
        (
            ("u", "Lindqvist moved the deadline: chapter 4 is due on 20 May now, not 30 April."),
            ("a", "Noted: chapter 4 by 20 May."),
            ("u", "The data of chapter 3 is under embargo, I heard."),
            ("a", "Then it has to leave the repository."),
        ),
    ),
    Session(
        "2026-04-11",
        "Menu for Opa's 80th birthday, 24 guests",
        "recipes",
        (
            ("u", "Opa turns 80 on 9 May. Aunt Rosa is coeliac and three people are vegetarian."),
            ("a", "Dessert: panna cotta with rhubarb."),
            ("u", "No panna cotta, gelatine isn't vegetarian."),
            ("a", "Rule for the birthday: no wheat flour in the kitchen on 9 May."),
        ),
    ),
    Session(
        "2026-05-06",
        "Beef cheeks: sous vide or oven?",
        "recipes",
        (
            ("u", "My brother brings his sous vide stick. Should we?"),
            (
                "a",
                "Sous vide at 68 °C takes 36 hours for beef cheeks. In the oven at 140 °C they take 4 hours.",
            ),
            ("u", "Oven then, on Friday."),
            ("u", "I prefer red wine in the sauce, half a litre, no port."),
        ),
    ),
    Session(
        "2026-05-22",
        "AdGuard replaced by Technitium",
        "homelab",
        (
            ("u", "The query log ate the card. I decided to replace AdGuard Home by Technitium on heron."),
            ("a", "Technitium runs on heron at 192.168.1.10, its web console on 5380."),
            ("u", "Keep the same IP 192.168.1.10, and only Quad9."),
            ("t", 'git commit -qam "Technitium instead of AdGuard Home" && git push → main 99aa001'),
            ("u", "Thanks."),
        ),
    ),
    Session(
        "2026-06-10",
        "NAS stork: backup retention",
        "homelab",
        (
            ("u", "The repository on stork has 900 snapshots. Which retention do we have?"),
            ("a", "None: restic-backup.service on stork never runs `forget`."),
            ("a", "restic-prune.service on stork keeps 14 daily snapshots and 24 monthly ones."),
            ("t", 'git commit -qam "restic: forget and prune on Sundays" && git push → main 77bb221'),
            ("u", "Nice, how long did the first one take?"),
            ("a", "2 hours 40 minutes, because the disks of stork are slow."),
            ("u", "Remember for next time: ask before you prune volumes."),
        ),
    ),
    Session(
        "2026-06-20",
        "Bed 2: slugs ate the beans",
        "garden",
        (
            ("u", "Slugs ate all the beans in bed 2. What can I do?"),
            ("a", "Nematodes work above 5 °C and cost 15 € for 40 m²."),
            ("u", "Decision: resow the beans in bed 2 on 28 June."),
            ("a", "The bush beans of bed 2 need 60 days."),
        ),
    ),
    Session(
        "2026-06-22",
        "Bed 3: onions bolting",
        "garden",
        (
            ("u", "The onions are bolting. What now?"),
            ("a", "Onions bolt after a cold spell when the sets are too large."),
            ("u", "Decision: bed 3 gets no onions for four years."),
            ("a", "The sets of bed 3 were larger than 21 mm."),
        ),
    ),
)

#: What holds, what stands in the history, and what stands nowhere on the page, by title.
SAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "Bed 2": (("resow the beans in bed 2",), (), ("onions",)),
    "Bed 3": (("no onions for four years",), (), ("beans",)),
    "Beef cheeks": (("Sous vide at 68 °C", "red wine in the sauce"), (), ("they take 4 hours",)),
    "Chapter 3": (("Decision for chapter 3",), (), ("I need to settle", "chapter 4", "survey")),
    "Chapter 4": (
        ("chapter 4 is due on 20 May now", "Outline of chapter 4"),
        ("Lindqvist wants chapter 4 by 30 April",),
        ("chapter 3", "embargo"),
    ),
    "DNS": (
        ("replace AdGuard Home by Technitium", "Keep the same IP"),
        ("I would take AdGuard Home", "AdGuard Home on heron"),
        (),
    ),
    "Menu for Opa's 80th birthday": (("no wheat flour",), (), ()),
    "NAS stork": (("restic-prune.service on stork keeps",), (), ("Restic", "never runs", "2 hours 40")),
    "Sourdough": (("78 % hydration with Manitoba", "20 minutes with the lid"), (), ("smart plug",)),
    "Sourdough hydration": (("Let's keep 70 % hydration",), (), ("spreading flat",)),
}
WISHES = ("Ask before you prune volumes.", "Never cups in my recipes, ever.")


@pytest.fixture(scope="module")
def lives(server: EmbeddedServer) -> Iterator[str]:
    with mined(server, "wiki_lives", LIVES) as url:
        yield url


@pytest.fixture
def wiki(lives: str) -> Iterator[Connection]:
    with connect(lives) as connection:
        yield connection


def test_the_pages_are_the_subjects(wiki: Connection) -> None:
    assert {topic.title for topic in list_topics(wiki)[0]} == {*SAYS, "Standing preferences"}


@pytest.mark.parametrize("title", SAYS)
def test_a_page_says_what_holds_of_its_subject_alone(wiki: Connection, title: str) -> None:
    check_page(wiki, title, SAYS[title])


def test_orders_for_ever_are_preferences_and_those_of_one_dish_are_not(wiki: Connection) -> None:
    found = read_topic(wiki, "standing-preferences")
    assert found is not None
    assert set(WISHES) <= set(texts(found))
    assert not any("red wine" in text for text in texts(found))


def test_pages_of_which_one_name_is_half_the_other_are_proposed_as_one_and_numbered_ones_are_not(
    wiki: Connection,
) -> None:
    with wiki.transaction(force_rollback=True):
        merges = consolidate(wiki).merges
    assert [set(pair) for pair in merges] == [{"Sourdough", "Sourdough hydration"}]


def test_a_decision_about_a_numbered_thing_stands_in_the_section_of_decisions(wiki: Connection) -> None:
    found = read_topic(wiki, "Chapter 3")
    assert found is not None
    (decided,) = [section for section in found.sections if section.name == "decisions"]
    assert any(sentence.text.startswith("Decision for chapter 3") for sentence in decided.sentences)


def test_mining_again_leaves_a_replaced_decision_where_it_is(lives: str) -> None:
    with open_pool(lives, max_size=3) as pool:
        mine_leaves(pool, days=None, miner=DeterministicMiner(), version=WIKI_PIPELINE_VERSION + 1)
        with pool.connection() as connection:
            assert "AdGuard" not in {topic.title for topic in list_topics(connection)[0]}
            found = read_topic(connection, "dns")
    assert found is not None
    assert any("replace AdGuard Home by Technitium" in text for text in texts(found))
    assert any("I would take AdGuard Home" in entry.sentence.text for entry in found.history)
