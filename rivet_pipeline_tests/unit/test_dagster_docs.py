"""Every name in the walk through the Dagster UI is one that is there."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg

from rivet_pipeline import definitions, versions
from rivet_pipeline.assets import reporting
from rivet_pipeline.automation.instance import POOL_LIMITS
from rivet_pipeline.automation.jobs import RetryFailed
from rivet_pipeline.settings import Settings

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")


def named(pattern: str) -> set[str]:
    return set(re.findall(rf"`({pattern})`", DOC))


def test_assets_checks_jobs_sensors_schedules_and_metadata_exist() -> None:
    repository = definitions.defs.get_repository_def()
    assets = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    groups = {node.group_name for node in repository.asset_graph.asset_nodes}
    checks = {key.name for key in repository.asset_graph.asset_check_keys}
    automation = set(repository.job_names)
    automation |= {one.name for one in repository.sensor_defs} | {one.name for one in repository.schedule_defs}
    figures = "\n".join(path.read_text(encoding="utf-8") for path in Path(reporting.__file__).parent.glob("*.py"))
    known = assets | {group or "" for group in groups} | checks | automation | set(POOL_LIMITS)
    known |= set(RetryFailed.to_config_schema().as_field().config_type.fields)  # type: ignore[attr-defined]
    tables = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "sql").glob("*.sql"))
    unknown = {
        name
        for name in named(r"(?:dagster/)?[a-z]+(?:_[a-z]+)*")
        if name not in known and name.removeprefix("run_") not in figures and not re.search(rf"\b{name}\b", tables)
    }
    assert unknown == set()
    assert assets <= named("[a-z_]+")


def test_versions_and_settings_exist() -> None:
    settings = {f"RIVETOS_{name.upper()}" for name in Settings.model_fields}
    for name in named("[A-Z]+(?:_[A-Z]+)+"):
        assert name in settings or hasattr(versions, name), name


def test_what_is_said_of_switches_limits_and_days_holds() -> None:
    repository = definitions.defs.get_repository_def()
    assert repository.get_sensor_def("remine_stale").default_status is dg.DefaultSensorStatus.STOPPED
    assert dict(POOL_LIMITS) == {"llm": 1, "embedder": 2}
    partitioned = {
        key.to_user_string()
        for key in repository.asset_graph.get_all_asset_keys()
        if repository.asset_graph.get(key).partitions_def is not None
    }
    assert not partitioned & {"wiki_topics", "wiki_embeddings", "lexicon", "retrieval_quality"}
    assert "wiki_patches" in partitioned
