"""The demo sessions as a wiki: the pages that a person expects, one a subject, each sentence back to the exact words.

Also what reads it: HTTP, tools, the command, the export. One store for all of it, made once and only read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest

import rivet_pipeline
from rivet_pipeline.api.tools.wiki import _messages
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.embedding.embed import embed_topics
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.retrieval.lineage import read_lineage
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.versions import WIKI_PIPELINE_VERSION
from rivet_pipeline.wiki.consolidate import consolidate
from rivet_pipeline.wiki.export import INDEX, MANIFEST, export_wiki
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.markdown import page_markdown
from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.names import is_subject
from rivet_pipeline.wiki.quality import oversized_pages, uncited_sentences, unlike_their_patches
from rivet_pipeline.wiki.read import TopicPage, list_topics, read_counts, read_gaps, read_topic, recent_changes
from rivet_pipeline.wiki.search import search_topics
from rivet_pipeline.wiki.standing import is_guess, points_elsewhere
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.integration.rivet_command import Run, rivet_command

DEMO = Path(rivet_pipeline.__file__).parent / "demo"
DOCS = Path(rivet_pipeline.__file__).parents[1] / "docs" / "wiki.md"

#: The days of the sessions that each page of the demo is about, read by eye.
SESSIONS = {
    "berth-plan": {"2026-09-09"},
    "ci-on-tidewatch": {"2026-09-18"},
    "double-booking-of-berth-n7": {"2026-09-15"},
    "gauge-history": {"2026-10-01"},
    "gauge-tg-04": {"2026-10-06"},
    "kelpie-0-10-0": {"2026-09-25"},
    "kelpie-0-11": {"2026-10-09"},
    "kelpie-nfc": {"2026-09-11"},
    "kelpie-push": {"2026-09-04"},
    "morgenbericht": {"2026-09-17"},
    "nightly-restic-backup": {"2026-09-08"},
    # On 20 October the old cluster went.
    "postgres-migration": {"2026-09-29", "2026-10-20"},
    # Redis was put in front of it, and taken away again three weeks later.
    "prediction-endpoint": {"2026-09-03", "2026-09-24"},
    "storm-surge-warning": {"2026-10-20"},
    "tide-gauge-importer": {"2026-09-01"},
}
#: What a person wants everywhere and always, from whichever session.
PREFERENCES = "standing-preferences"


@pytest.fixture(scope="module")
def demo(server: EmbeddedServer) -> Iterator[str]:
    """The address of a store with the demo sessions, their leaves, the wiki and its vectors."""
    with module_store(server, "wiki_demo") as url, open_pool(url, max_size=3) as pool:
        import_paths(pool, [DEMO], first_day=date(2022, 11, 1), max_line=10**8)
        with pool.connection() as connection:
            connection.execute("UPDATE ros_conversations SET updated_at = now() - interval '5 days'")
        summarize_leaves(pool, days=None, summarizer=ExtractiveSummarizer())
        report = mine_leaves(pool, days=None, miner=DeterministicMiner())
        assert report.failures == 0
        embed_topics(pool, WordLlamaEmbedder())
        yield url


@pytest.fixture
def wiki(demo: str) -> Iterator[Connection]:
    with connect(demo) as connection:
        yield connection


@pytest.fixture(scope="module")
def client(demo: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = Settings(home=tmp_path_factory.mktemp("home"), dagster_port=1)
    with ExitStack() as stack:
        base = stack.enter_context(running_api(settings, demo))
        yield stack.enter_context(httpx.Client(base_url=base, timeout=60))


@pytest.fixture
def run(
    demo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    with rivet_command(demo, tmp_path, monkeypatch, capsys, before=("wiki",)) as call:
        yield call


def page(connection: Connection, slug: str) -> TopicPage:
    found = read_topic(connection, slug)
    assert found is not None, slug
    return found


def said(found: TopicPage) -> list[str]:
    return [sentence.text for section in found.sections for sentence in section.sentences]


# --- the pages ------------------------------------------------------------------------------------------------------


def test_the_pages_that_a_person_expects_are_there_and_no_others(wiki: Connection) -> None:
    topics, total = list_topics(wiki)
    assert {topic.slug for topic in topics} == {*SESSIONS, PREFERENCES}
    assert total == len(topics)


def test_the_docs_name_exactly_these_pages() -> None:
    shown = DOCS.read_text(encoding="utf-8").split("<!-- demo pages: begin -->")[1].split("<!-- demo pages: end -->")[0]
    assert set(re.findall(r"^\| `([a-z0-9-]+)`", shown, re.MULTILINE)) == {*SESSIONS, PREFERENCES}


def test_titles_are_subjects_and_never_sentences(wiki: Connection) -> None:
    assert [topic.title for topic in list_topics(wiki)[0] if not is_subject(topic.title)] == []


def test_no_page_is_about_two_subjects(wiki: Connection) -> None:
    """Each page's sentences come from the sessions about its subject alone."""
    rows = wiki.execute(
        """
        SELECT t.slug, array_agg(DISTINCT s.day::text) AS days
        FROM ros_wiki_citations AS c JOIN ros_wiki_topics AS t ON t.id = c.topic_id
        JOIN ros_summaries AS s ON s.id = c.leaf_id
        WHERE t.slug <> %s GROUP BY t.slug
        """,
        [PREFERENCES],
    ).fetchall()
    assert {row["slug"]: set(row["days"]) - SESSIONS[row["slug"]] for row in rows} == {slug: set() for slug in SESSIONS}


def test_no_two_pages_are_about_one_subject(wiki: Connection) -> None:
    """Sessions about one subject feed one page, and consolidation sees no two that are alike."""
    rows = wiki.execute(
        """
        SELECT s.conversation_id, array_agg(DISTINCT t.slug) AS slugs
        FROM ros_wiki_patches AS p JOIN ros_summaries AS s ON s.id = p.leaf_id
        JOIN ros_wiki_topics AS t ON t.id = p.topic_id
        WHERE p.decision IN ('new', 'entities', 'alias', 'search') GROUP BY s.conversation_id
        """
    ).fetchall()
    assert all(len(set(row["slugs"]) - {PREFERENCES}) == 1 for row in rows if set(row["slugs"]) != {PREFERENCES})
    with wiki.transaction(force_rollback=True):
        assert consolidate(wiki).merges == []


def test_a_reversed_decision_stands_in_history_with_its_date(wiki: Connection) -> None:
    found = page(wiki, "prediction-endpoint")
    # What two subjects speak of is a name of neither.
    assert found.aliases == ()
    assert read_topic(wiki, "redis") is None
    assert any("we drop Redis from tidewatch" in text for text in said(found))
    assert not any("we put Redis in front of the predictions" in text for text in said(found))
    (former,) = [entry for entry in found.history if "we put Redis in front" in entry.sentence.text]
    assert former.sentence.as_of.date() == date(2026, 9, 3)
    assert former.superseded_at.date() == date(2026, 9, 24)
    assert "As of 2026-09-03: Decision, 3 September" in page_markdown(found)


#: What each page must say, and what of its sessions was refuted, superseded, unfinished or is no sentence by itself.
SAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "berth-plan": (
        ("blue `#0072B2` for free", "local times in the tooltip"),
        ("cuts the time", "red"),
    ),
    "ci-on-tidewatch": (
        ("a fixed port, a clock read twice, a shared Redis database",),
        ("Two families", "retry plugin"),
    ),
    "double-booking-of-berth-n7": (
        ("We chose the exclusion constraint then, over the advisory lock",),
        ("Last night",),
    ),
    "gauge-history": (("Only ANALYZE then, no index.",), ("8 seconds", "B-tree", "0.068")),
    "gauge-tg-04": (("Set TG-04 to 300", "suspect = true"), ("foot", "0.3048", "Load them", "I would take")),
    "kelpie-0-10-0": (
        ("For the record why SQLite", "never cross a fork"),
        ("PR #18", "database is locked", "Haruka has", "your dependency rule"),
    ),
    "kelpie-0-11": (("keep both copies, detection with If-Match and hash",), ("I like that", "Last writer wins")),
    "kelpie-nfc": (("never rename the local file", "differ only in Unicode form"), ("Fix both", "uploaded again")),
    "kelpie-push": (
        ("ConnectionResetError on kelpie push came from the WireGuard MTU",),
        ("most likely", "50 MB", "max_size", "1352", "your notes"),
    ),
    "morgenbericht": (("einen kurzen Bericht auf Deutsch",), ("kommt morgen", "5:30 UTC")),
    "nightly-restic-backup": (("move the reboot to 04:30",), ("cron entry", "not the cron job")),
    "postgres-migration": (
        ("no pg_partman, monthly partitions", "Postgres 17 stays on 5433"),
        ("13 October", "beside the old one", "jumps by 500", "Next step", "I wanted to use", "version mismatch"),
    ),
    "prediction-endpoint": (
        ("we drop Redis from tidewatch",),
        ("too slow", "PR #41 is open", "we put Redis", "37 harmonic", "Warm answers", "One question", "15 minutes"),
    ),
    "standing-preferences": (
        ("Always uv, never pip.", "never tell two states apart by red/green alone", "British spelling"),
        ("First day with you", "They are millimetres", "next time"),
    ),
    "storm-surge-warning": (
        ("4 of 4 surges warned", "rise more than 1.20 m above mean high water"),
        ("Two things today", "5433", "Plausibility ranges", "kelpie 0.11", "Threshold stays"),
    ),
    "tide-gauge-importer": (("8437 for the tide gauge importer",), ("Leave them", "line 57", "Run it", "by hand")),
}


@pytest.mark.parametrize("slug", [*SESSIONS, PREFERENCES])
def test_each_page_says_what_holds_and_nothing_that_does_not(wiki: Connection, slug: str) -> None:
    musts, nevers = SAYS[slug]
    told = said(page(wiki, slug))
    assert [words for words in musts if not any(words in text for text in told)] == []
    assert [(words, text) for words in nevers for text in told if words in text] == []


def test_every_sentence_stands_by_itself(wiki: Connection) -> None:
    for topic in list_topics(wiki)[0]:
        for text in said(page(wiki, topic.slug)):
            quoted = " Agreed: \u201c" in text or text.startswith("Committed: \u201c")
            assert quoted or not points_elsewhere(text), (topic.slug, text)
            assert not text.endswith((":", ",", "?", "\u2026")), (topic.slug, text)
            assert not is_guess(text), (topic.slug, text)


def test_names_of_pages_are_names(wiki: Connection) -> None:
    spoken = {name.casefold() for topic in list_topics(wiki)[0] for name in topic.entities}
    assert not spoken & {"path", "truncate", "mit", "let", "with", "null", "tests", "der timer", "bericht", "iso"}
    assert [topic.slug for topic in list_topics(wiki)[0] if topic.aliases] == []


def test_where_the_sessions_ran_is_no_entity(wiki: Connection) -> None:
    names = {name.casefold() for topic in list_topics(wiki)[0] for name in topic.entities}
    assert not names & {"tidewatch", "kelpie", "brine", "project:tidewatch", "project:kelpie", "project:brine"}


def test_the_wiki_is_sound_and_mining_again_changes_nothing(wiki: Connection, demo: str) -> None:
    for question in (uncited_sentences, unlike_their_patches, oversized_pages):
        assert question(wiki).at_fault == 0
    with open_pool(demo, max_size=2) as pool:
        assert mine_leaves(pool, days=None, miner=DeterministicMiner()).rows == 0
    counts = read_counts(wiki)
    assert counts.pages == len(SESSIONS) + 1
    assert set(counts.patches) == {"applied"}
    gaps = read_gaps(wiki)
    assert gaps.unmined == gaps.failed == gaps.older_version == 0
    assert "Grafana" in {wanted.name for wanted in gaps.wanted}
    assert len(recent_changes(wiki, limit=5)) == 5


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        ("storm surge", "storm-surge-warning"),
        ("how are predictions served", "prediction-endpoint"),
        ("redis dropped", "prediction-endpoint"),
        ("restic unlock", "nightly-restic-backup"),
        ("house rules", "standing-preferences"),
        ("exclusion constraint", "double-booking-of-berth-n7"),
    ],
)
def test_pages_are_found_by_words(wiki: Connection, query: str, slug: str) -> None:
    assert search_topics(wiki, query, limit=3).hits[0].slug == slug


@pytest.mark.parametrize("query", ["", "   ", "the", "&|!()", "'; DROP TABLE x;--", "\\", "🚀", "%"])
def test_any_query_answers(wiki: Connection, query: str) -> None:
    found = search_topics(wiki, query)
    assert found.hits or found.reason


# --- the readers ----------------------------------------------------------------------------------------------------


def get(client: httpx.Client, path: str, expected: int = 200, **query: Any) -> Any:
    response = client.get(path, params=query)
    assert response.status_code == expected, response.text
    return response.json()


def test_from_a_sentence_to_the_exact_message_in_three_calls(client: httpx.Client) -> None:
    found = get(client, "/api/wiki/storm-surge-warning")
    sentence = next(
        one for section in found["sections"] for one in section["sentences"] if "4 of 4 surges warned" in one["text"]
    )
    leaf = sentence["citations"][0]["leafId"]
    assert {one["label"]: one["leafId"] for one in found["citations"]}[sentence["citations"][0]["label"]] == leaf
    lineage = get(client, f"/api/memory/lineage/{leaf}")
    message = next(one for one in lineage["summary"]["messages"] if "4 of 4 surges" in one["excerpt"])
    answer = client.post("/api/memory/tool/memory_get_full", json={"id": message["id"]}).json()
    assert "median lead 4 h 10 min" in answer["result"]


def test_an_agent_comes_from_a_sentence_to_the_exact_message_by_tools_alone(client: httpx.Client) -> None:
    def call(tool: str, **arguments: Any) -> str:
        response = client.post(f"/api/memory/tool/{tool}", json=arguments)
        assert response.status_code == 200, response.text
        return str(response.json()["result"])

    whole = call("wiki_read", slug="storm-surge-warning")
    (line,) = [line for line in whole.splitlines() if "4 of 4 surges warned" in line]
    assert "citation=<label>" in whole
    (cited,) = re.findall(r"\[\^(\w+)\]", line)
    messages = call("wiki_read", slug="storm-surge-warning", citation=cited)
    (found,) = re.findall(r"^(\S+)  .*\n> .*4 of 4 surges", messages, re.MULTILINE)
    assert "median lead 4 h 10 min" in call("memory_get_full", id=found)
    assert call("wiki_read", slug="Storm surge warning", citation=f"[^{cited}]") == messages
    wrong = client.post("/api/memory/tool/wiki_read", json={"slug": "storm-surge-warning", "citation": "00000000"})
    assert (wrong.status_code, cited in wrong.json()["detail"]) == (404, True)


def test_messages_beyond_the_budget_are_counted(wiki: Connection) -> None:
    cited = page(wiki, "storm-surge-warning").citations[0]
    few = _messages(cited, read_lineage(wiki, cited.leaf_id), 200)
    assert "messages more; a larger max_tokens shows them. memory_get_full shows" in few
    assert few.count("\n> ") + int(re.findall(r"(\d+) messages? more", few)[0]) == cited.messages


def test_pages_are_listed_found_and_read_over_http(client: httpx.Client) -> None:
    listed = get(client, "/api/wiki", limit=3)
    assert (len(listed["topics"]), listed["total"]) == (3, len(SESSIONS) + 1)
    assert [one["slug"] for one in get(client, "/api/wiki", entity="WireGuard")["topics"]] == ["kelpie-push"]
    found = get(client, "/api/wiki", q="storm surge")
    assert found["results"][0]["slug"] == "storm-surge-warning"
    assert found["degraded"] is None
    whole = get(client, "/api/wiki/Storm surge warning")
    raw = client.get("/api/wiki/storm-surge-warning/raw")
    assert raw.headers["content-type"] == "text/markdown; charset=utf-8"
    assert raw.text == whole["markdown"]
    assert get(client, "/api/wiki/kelpie-0-11/history", limit=2)["revisions"][0]["slug"] == "kelpie-0-11"
    latest = get(client, "/api/wiki/_recent", limit=4)["revisions"]
    assert all(one["patchId"] and one["added"] for one in latest)
    (made,) = [
        one
        for one in get(client, "/api/wiki/_patches", state="applied")["patches"]
        if one["id"] == latest[0]["patchId"]
    ]
    assert made["slug"] == latest[0]["slug"]
    assert get(client, "/api/wiki", offset=500) == {"topics": [], "total": listed["total"]}
    assert get(client, "/api/wiki/_gaps")["wanted"]
    assert get(client, "/api/wiki/_counts")["pages"] == len(SESSIONS) + 1
    patches = get(client, "/api/wiki/_patches", state="applied", slug="kelpie-0-11", limit=1)
    assert patches["patches"][0]["slug"] == "kelpie-0-11"
    assert get(client, "/api/wiki/_patches", state="applied", slug="Kelpie 0.11", limit=1) == patches
    following = get(client, "/api/wiki/_patches", state="applied", slug="kelpie-0-11", before=patches["next"])
    assert following["next"] is None


def test_what_is_not_there_or_wrong_says_so(client: httpx.Client) -> None:
    assert "no page" in get(client, "/api/wiki/nothing-of-the-kind", 404)["detail"]
    get(client, "/api/wiki/nothing-of-the-kind/history", 404)
    get(client, "/api/wiki", 400, slgu="x")
    assert "this address takes none" in get(client, "/api/wiki/tank", 400, view="raw")["detail"]
    get(client, "/api/wiki", 400, q="x", entity="y")
    unknown = "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"
    body = {"ids": [unknown], "state": "accepted", "decided_by": "mara"}
    assert client.post("/api/wiki/_patches/decide", json=body).json()["decided"][0]["problem"]
    assert client.post(f"/api/wiki/_patches/{unknown}/revert", json={"decided_by": "mara"}).status_code == 404
    assert client.post("/api/wiki/_patches/decide", json=body | {"state": "burn"}).status_code == 400
    assert client.post("/api/wiki/_patches/decide", content="x=1").status_code == 415


def test_the_tools_find_and_read(client: httpx.Client) -> None:
    found = client.post("/api/memory/tool/wiki_search", json={"query": "storm surge", "limit": None}).json()["result"]
    assert found.startswith("Storm surge warning (slug storm-surge-warning, verified 2026-10-20)")
    whole = client.post("/api/memory/tool/wiki_read", json={"slug": "prediction endpoint"}).json()["result"]
    assert whole.startswith('---\ntitle: "Prediction endpoint"')
    for section, words in {
        "summary": "## Decisions",
        "history": "superseded 2026-09-24 by",
        "citations": "citation=<label>",
        "names": "Redis",
    }.items():
        answer = client.post(
            "/api/memory/tool/wiki_read", json={"slug": "prediction-endpoint", "section": section}
        ).json()
        assert words in answer["result"]
    missing = client.post("/api/memory/tool/wiki_read", json={"slug": "no such page"})
    assert missing.status_code == 404
    assert "wiki_search" in missing.json()["detail"]


def test_the_command_lists_shows_finds_and_exports(run: Run, tmp_path: Path) -> None:
    assert "Storm surge warning  storm-surge-warning" in run("list").out
    assert run("list", "--json").json["total"] == len(SESSIONS) + 1
    assert "## Decisions" in run("show", "Prediction endpoint").out
    assert run("show", "prediction-endpoint", "--json").json["slug"] == "prediction-endpoint"
    missing = run("show", "no such page")
    assert (missing.code, "rivet wiki list" in missing.err) == (1, True)
    assert "storm-surge-warning" in run("search", "storm surge").out
    assert run("search", "storm surge", "--json").json["results"]
    assert "Grafana" in run("gaps").out
    assert run("gaps", "--json").json["unmined"] == 0
    assert "No patch is proposed." in run("patches").out
    assert "facts:" in run("patches", "--state", "applied", "--page", "kelpie-0-10-0").out
    assert "importer" in run("patches", "--state", "applied", "--page", "Tide gauge importer").out
    assert "No patch of 'nothing' is applied." in run("patches", "--state", "applied", "--page", "nothing").out
    folder = tmp_path / "vault"
    assert run("export", str(folder), "--json").json["written"]
    assert f"unchanged {len(SESSIONS) + 2}" in run("export", str(folder)).out
    wrong = run("revert", "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49")
    assert (wrong.code, "there is no such patch" in wrong.err) == (1, True)
    assert run("decide", "burn", "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49").code == 2
    assert "no patch begins with 00000000" in run("revert", "00000000").err
    assert "is no id" in run("decide", "accept", "0b9c").err
    assert "is no id" in run("decide", "accept", "of the bread").err
    known = run("patches", "--state", "applied", "--page", "kelpie-0-10-0", "--json").json["patches"][0]["id"]
    refused = run("decide", "reject", known[:8])
    assert (refused.code, f"{known}: it is applied; revert it instead" in refused.err) == (1, True)


# --- the export -----------------------------------------------------------------------------------------------------


def test_the_export_is_stable_and_its_links_lead_to_files(wiki: Connection, tmp_path: Path) -> None:
    first = export_wiki(wiki, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    second = export_wiki(wiki, tmp_path)
    assert len(first.written) == len(SESSIONS) + 2
    assert (second.written, second.unchanged, second.removed) == ([], len(SESSIONS) + 2, [])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    for name, content in before.items():
        for target in re.findall(r"(?<!\\)\[\[([^|\]]+)", content.decode()):
            assert (tmp_path / f"{target}.md").exists(), (name, target)
        if name.endswith(".md") and name != INDEX:
            text = content.decode()
            assert text.startswith("---\ntitle: ")
            assert set(re.findall(r"\[\^(\w+)\](?!:)", text)) == set(re.findall(r"^\[\^(\w+)\]:", text, re.MULTILINE))


def test_the_export_never_touches_what_it_did_not_write(wiki: Connection, tmp_path: Path) -> None:
    mine = tmp_path / "morgenbericht.md"
    mine.write_text("My own notes.")
    (tmp_path / "kelpie-push.md").symlink_to(mine)
    (tmp_path / "elsewhere").mkdir()
    first = export_wiki(wiki, tmp_path)
    assert sorted(first.left_alone) == ["kelpie-push.md", "morgenbericht.md"]
    assert mine.read_text() == "My own notes."
    edited = tmp_path / "gauge-history.md"
    edited.write_text("Edited by hand.")
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    manifest["files"]["gone.md"] = "0" * 64
    manifest["files"]["../escape.md"] = "0" * 64
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    (tmp_path / "gone.md").write_text("Once ours, and edited since.")
    second = export_wiki(wiki, tmp_path)
    assert sorted(second.left_alone) == ["gauge-history.md", "gone.md", "kelpie-push.md", "morgenbericht.md"]
    assert edited.read_text() == "Edited by hand."
    assert (tmp_path / "gone.md").exists()
    assert (tmp_path / "elsewhere").is_dir()


# --- mined again: changes the patches of the store, so it stands last -------------------------------------------------


def test_mining_all_of_it_again_by_the_same_rules_changes_no_page(demo: str) -> None:
    """Pages that came later than a leaf must not change what the leaf is taken to say."""
    with open_pool(demo, max_size=3) as pool:
        with pool.connection() as connection:
            before = {topic.slug: page_markdown(page(connection, topic.slug)) for topic in list_topics(connection)[0]}
        report = mine_leaves(pool, days=None, miner=DeterministicMiner(), version=WIKI_PIPELINE_VERSION + 1)
        assert (report.failures, sum(day.characters for day in report.days.values()) > 0) == (0, True)
        with pool.connection() as connection:
            after = {topic.slug: page_markdown(page(connection, topic.slug)) for topic in list_topics(connection)[0]}
    assert after == before
