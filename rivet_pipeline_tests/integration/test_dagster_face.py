"""What a person reads in the Dagster UI: links into the hub that lead somewhere, words that say what to do, figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import httpx
import pytest

from rivet_pipeline.assets.leftover_work import Left, what_is_left
from rivet_pipeline.assets.links import in_hub
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.definitions import defs
from rivet_pipeline.retrieval.timeline import StageState
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.stages import STAGES, SUMMARY_STAGES, WHOLE_STAGES
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.hub_store import fill_hub_store
from rivet_pipeline_tests.integration.pipeline import DAY, Pipeline, capture, materializations

DOC = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text(encoding="utf-8")
SPECS = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
LINK = re.compile(r"\[[^\]]+\]\((http[^)]+)\)")

#: What the column "shown by" of the table of figures means.
SHOWN_BY = {"every day": STAGES, "every day but `messages`": STAGES[1:], "summaries": SUMMARY_STAGES}

#: Metadata that only a run with something to show has.
ON_OCCASION = {"worth_a_look", "run_drop_reasons", "coverage", "run_coverage"}


@pytest.fixture(scope="module")
def client(server: EmbeddedServer) -> Iterator[httpx.Client]:
    with module_store(server, "dagster_face") as url:
        with connect(url) as connection:
            fill_hub_store(connection, url)
        with running_api(Settings(), url) as base, httpx.Client(base_url=base, timeout=30) as opened:
            yield opened


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def pipeline(database_url: str, connection: Connection, instance: dg.DagsterInstance) -> Pipeline:
    return Pipeline(database_url, connection, instance)


def documented() -> dict[str, tuple[set[str], str]]:
    """The figures of the documentation's tables: by key, the assets that show it, and number or words."""
    rows = re.findall(r"^\| `([a-z_/]+)` \| (number|words|link) \| ([^|]+) \|", DOC, flags=re.MULTILINE)
    return {key: (set().union(*map(_assets, shown.split(", "))), kind) for key, kind, shown in rows}


def _assets(shown: str) -> set[str]:
    return set(SHOWN_BY.get(shown.strip(), re.findall(r"`([a-z_]+)`", shown)))


@pytest.mark.parametrize("name", sorted(SPECS))
def test_an_asset_names_its_table_and_leads_to_pages_of_the_hub_that_are_there(name: str, client: httpx.Client) -> None:
    description = SPECS[name].description or ""
    links = LINK.findall(description)
    assert links
    for link in links:
        assert link.startswith(f"{get_settings().api_address}/hub"), link
        answer = client.get(urlsplit(link).path)
        assert answer.status_code == 200, link
        assert "<h1" in answer.text
    # The graph shows the first words only.
    assert "](" not in description.split("\n\n")[0]
    table = SPECS[name].metadata.get("dagster/table_name")
    assert (table is None) == (name == "retrieval_quality")
    assert table is None or f"`{table}`" in description


def test_every_named_table_is_there(connection: Connection) -> None:
    for spec in SPECS.values():
        table = spec.metadata.get("dagster/table_name")
        if table is not None:
            (found,) = connection.execute("SELECT to_regclass(%s) IS NOT NULL AS there", [table]).fetchall()
            assert found["there"], table


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "http://127.0.0.1:6001/hub"),
        ("::", "http://[::1]:6001/hub"),
        ("[::1]", "http://[::1]:6001/hub"),
        ("10.0.0.5", "http://10.0.0.5:6001/hub"),
    ],
)
def test_links_follow_the_settings(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    monkeypatch.setenv("RIVETOS_API_HOST", host)
    monkeypatch.setenv("RIVETOS_API_PORT", "6001")
    # Where captures go is another machine's business.
    monkeypatch.setenv("RIVETOS_API_URL", "https://memory.example")
    get_settings.cache_clear()
    try:
        assert in_hub("/hub") == address
    finally:
        monkeypatch.undo()
        get_settings.cache_clear()


def test_every_check_says_what_it_means_when_it_does_not_pass() -> None:
    graph = defs.resolve_asset_graph()
    for key in graph.asset_check_keys:
        description = graph.get(key).description or ""
        assert re.search(r"\b(warning|failure)\b", description), key
        assert len(description) < 420, key


def test_every_job_sensor_and_schedule_says_what_and_when_in_a_line_or_two() -> None:
    repository = defs.get_repository_def()
    shown = {name: repository.get_job(name).description for name in repository.job_names if not name.startswith("__")}
    shown |= {one.name: one.description for one in repository.schedule_defs}
    shown |= {one.name: one.description for one in repository.sensor_defs}
    assert len(shown) >= 20
    for name, description in shown.items():
        assert description, name
        assert 40 < len(description) < 240, name
        assert re.search(r"\b(every|by hand|off until)\b", description, flags=re.IGNORECASE), name


def test_a_schedule_says_the_minute_that_its_cron_line_says() -> None:
    for schedule in defs.get_repository_def().schedule_defs:
        minute, hour = str(schedule.cron_schedule).split()[:2]
        said = (
            "five minutes" if minute.startswith("*") else f"{hour.replace('*', ''):>02}:{minute:>02}".removeprefix("00")
        )
        assert said in (schedule.description or ""), schedule.name


def test_the_groups_are_few_and_those_that_are_documented() -> None:
    groups = {spec.group_name for spec in SPECS.values()}
    assert groups == {"conversations", "search", "summaries", "tags", "wiki"}
    table = dict(re.findall(r"^\| `([a-z]+)` \| ([^|]+) \|$", DOC, flags=re.MULTILINE))
    for name, spec in SPECS.items():
        assert f"`{name}`" in table[str(spec.group_name)], name


def test_the_figures_of_a_day_are_the_documented_ones_and_plain_numbers(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=20, word="We decided to keep the importer on port 8437.")
    pipeline.connection.execute("UPDATE ros_conversations SET title = 'Importer port'")
    result = pipeline.run(DAY)
    table = documented()
    seen: set[str] = set()
    for stage in STAGES:
        shown: Mapping[str, Any] = materializations(result, stage)[str(DAY)]
        seen |= set(shown)
        assert list(shown)[:2] == ["what_is_left", "hub"], stage
        for key, value in shown.items():
            assert key in table, (stage, key)
            assets, kind = table[key]
            assert stage in assets, (stage, key)
            assert (type(value) in {int, float}) == (kind == "number"), (stage, key)
    of_days = {key for key, (assets, _) in table.items() if assets & set(STAGES)}
    assert of_days - ON_OCCASION <= seen


def test_the_figures_of_what_has_no_days_are_the_documented_ones(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10, word="We decided to keep the importer on port 8437.")
    pipeline.run(DAY)
    whole = ("lexicon", *WHOLE_STAGES)
    result = pipeline.defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=pipeline.instance, asset_selection=[dg.AssetKey(name) for name in whole]
    )
    table = documented()
    for name in whole:
        (shown,) = materializations(result, name).values()
        assert set(shown) == {key for key, (assets, _) in table.items() if name in assets}, name
        for key, value in shown.items():
            assert (type(value) in {int, float}) == (table[key][1] == "number"), (name, key)


def test_a_day_says_what_is_left_of_it_and_why(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10, word="zeppelin")
    capture(pipeline.connection, "test:2", count=3)
    pipeline.connection.execute("UPDATE ros_conversations SET updated_at = now() WHERE session_key = 'test:2'")
    pipeline.models.summarizer.poison = "zeppelin"
    shown = materializations(pipeline.run(DAY, raise_on_error=False), "leaf_summaries")[str(DAY)]
    assert (shown["failing"], shown["waiting"], shown["pending"]) == (1, 3, 0)
    words = shown["what_is_left"]
    assert "**1 failing**" in words
    assert "would rather not" in words
    assert "rivet memory retry-failed --task leaf_summaries" in words
    assert "**3 waiting**" in words
    assert shown["hub"] == f"http://127.0.0.1:5174/hub/day/{DAY}"
    # Of another stage nothing is left.
    assert materializations(pipeline.run(DAY, raise_on_error=False), "messages")[str(DAY)]["what_is_left"].startswith(
        "Nothing"
    )


def test_a_day_says_that_its_model_service_is_down(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10)
    pipeline.models.summarizer.down = True
    result = pipeline.run(DAY, raise_on_error=False)
    shown = materializations(result, "leaf_summaries")[str(DAY)]
    assert (shown["pending"], shown["waiting"]) == (0, 10)
    words = shown["what_is_left"]
    assert "**The model service is down**" in words
    assert "http-503: busy" in words
    # The levels above share the service, and the embeddings do not.
    assert "is down" in materializations(result, "branch_summaries")[str(DAY)]["what_is_left"]
    assert "is down" not in materializations(result, "message_embeddings")[str(DAY)]["what_is_left"]


def test_a_ledger_row_can_not_break_out_of_its_table_and_a_long_ledger_leads_to_the_hub() -> None:
    failure = {
        "item": "a|b`c",
        "cause": "content",
        "attempts": 3,
        "error": "first\n\n| second | `third` " + "x" * 300,
        "next_attempt_at": None,
    }
    rests = failure | {"next_attempt_at": datetime(2026, 3, 2, 9, 30, tzinfo=UTC)}
    left = Left("leaf_summaries", DAY, StageState(failing=7), stale=2, failures=[failure, rests] + [failure] * 5)
    words = what_is_left(left)
    lines = [line for line in words.split("\n") if line.startswith("|")]
    assert len(lines) == 2 + 5
    assert {line.count("|") for line in lines} == {6}
    assert "given up" in lines[2]
    assert "2026-03-02 09:30 UTC" in lines[3]
    assert f"/hub/day/{DAY})" in words
    assert "**2 stale**" in words
    assert what_is_left(Left("leaf_summaries", DAY + timedelta(days=1), StageState())).startswith("Nothing")
