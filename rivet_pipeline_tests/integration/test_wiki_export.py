"""The export's folder: odd titles, pages that go, files that somebody touches, and an export that is killed."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.wiki import export
from rivet_pipeline.wiki.export import INDEX, MANIFEST, export_wiki
from rivet_pipeline.wiki.review import revert
from rivet_pipeline.wiki.types import MineRequest, PatchDraft
from rivet_pipeline_tests.integration.test_wiki_identity import merge
from rivet_pipeline_tests.integration.test_wiki_review import patch_ids, topic
from rivet_pipeline_tests.integration.wiki_rows import ScriptedMiner, add_leaf, draft, mine


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def said(drafts: list[PatchDraft], _: MineRequest) -> list[PatchDraft]:
    return drafts


def test_every_page_has_a_file_of_its_own_and_every_link_leads_to_one(
    connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    titles = ["Con", "Con page", "NUL", "Array[int] | list", "Über\u200b Größe", "比較", "\U0001f6a2 Port", "a" * 80]
    related = tuple(titles)
    for place, title in enumerate(titles):
        one = replace(draft(title, f"It is number {place} of the odd ones"), related=related)
        add_leaf(connection, title, days=place)
        mine(pool, ScriptedMiner(partial(said, [one])))
    report = export_wiki(connection, tmp_path)
    assert len(report.written) == len(titles) + 1
    assert names(tmp_path) == sorted([*report.written, MANIFEST])
    assert len({name.casefold() for name in report.written}) == len(report.written)
    assert not {name.split(".")[0] for name in report.written} & {"con", "nul"}
    for name in report.written:
        content = (tmp_path / name).read_text()
        links = re.findall(r"(?<!\\)\[\[([^|\]]+)\|([^\]]*)\]\]", content)
        assert content.count("[[") == len(links)
        assert len(links) == len(titles) - (name != INDEX)
        for target, title in links:
            assert (tmp_path / f"{target}.md").exists(), (name, target)
            assert "[" not in title


def test_pages_that_are_gone_or_merged_leave_no_file(connection: Connection, pool: Pool, tmp_path: Path) -> None:
    for place, title in enumerate(("Importer", "Gauge poller", "Berth plan")):
        add_leaf(connection, f"{title} | It is number {place} here", days=place)
    mine(pool)
    export_wiki(connection, tmp_path)
    merge(connection, topic(connection, "importer"), topic(connection, "gauge-poller"))
    revert(connection, patch_ids(connection, "applied")[2], by="mara")
    report = export_wiki(connection, tmp_path)
    assert report.removed == ["berth-plan.md", "gauge-poller.md"]
    assert names(tmp_path) == [MANIFEST, INDEX, "importer.md"]
    assert "gauge-poller" not in (tmp_path / INDEX).read_text()


def test_more_pages_than_are_read_at_once_stay(
    connection: Connection, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_leaf(connection, "Importer | It imports\nBerth plan | It plans\nGauges | They gauge")
    mine(pool)
    for at_once in (1, 2, 3):
        monkeypatch.setattr(export, "_PAGES_AT_ONCE", at_once)
        export_wiki(connection, tmp_path)
        assert names(tmp_path) == [MANIFEST, INDEX, "berth-plan.md", "gauges.md", "importer.md"]


def test_a_file_that_is_as_an_export_wrote_it_is_ours_again(connection: Connection, pool: Pool, tmp_path: Path) -> None:
    add_leaf(connection, "Importer | It imports")
    mine(pool)
    export_wiki(connection, tmp_path)
    ours = (tmp_path / "importer.md").read_text()
    (tmp_path / "importer.md").write_text("Edited.")
    add_leaf(connection, "Importer | It polls", days=1)
    mine(pool)
    for _ in range(2):
        assert export_wiki(connection, tmp_path).left_alone == ["importer.md"]
    (tmp_path / "importer.md").write_text(ours)
    assert "importer.md" in export_wiki(connection, tmp_path).written
    assert "It polls" in (tmp_path / "importer.md").read_text()


def test_an_export_that_was_killed_knows_its_files_when_the_wiki_has_changed_since(
    connection: Connection, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_leaf(connection, "Importer | It imports\nBerth plan | It plans")
    mine(pool)
    whole = export._write

    def killed(path: Path, text: str) -> None:
        if path.name == "importer.md":
            raise KeyboardInterrupt
        whole(path, text)

    for days in (1, 2):
        monkeypatch.setattr(export, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            export_wiki(connection, tmp_path)
        monkeypatch.setattr(export, "_write", whole)
        add_leaf(connection, f"Importer | It polls {days} gauges\nBerth plan | It shows {days} berths", days=days)
        mine(pool)
    halves: list[Path] = []

    def remembered(temporary: Path, target: Path) -> Path:
        halves.append(temporary)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", remembered)
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            export_wiki(connection, tmp_path)
    assert halves[0].exists()
    os.utime(halves[0], (0, 0))
    report = export_wiki(connection, tmp_path)
    assert (report.left_alone, halves[0].exists()) == ([], False)
    assert report.written == [INDEX, "berth-plan.md", "importer.md"][-len(report.written) :]
    assert "shows 2 berths" in (tmp_path / "berth-plan.md").read_text()
    assert json.loads((tmp_path / MANIFEST).read_text()).keys() == {"files"}
    assert export_wiki(connection, tmp_path).unchanged == 3


def test_what_a_person_calls_like_half_a_file_stays(connection: Connection, pool: Pool, tmp_path: Path) -> None:
    add_leaf(connection, "Importer | It imports")
    mine(pool)
    own, folder = tmp_path / ".rivet-settings.tmp", tmp_path / f".rivet-{'a' * 32}-folder_1.tmp"
    own.write_text("Mine.")
    folder.mkdir()
    for path in (own, folder):
        os.utime(path, (0, 0))
    assert export_wiki(connection, tmp_path).written == [INDEX, "importer.md"]
    assert (own.read_text(), folder.is_dir()) == ("Mine.", True)


def test_what_is_written_or_removed_while_an_export_runs_is_left_alone(
    connection: Connection, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_leaf(connection, "Importer | It imports\nBerth plan | It plans\nGauges | They gauge")
    add_leaf(connection, "Tides | They turn")
    mine(pool)
    export_wiki(connection, tmp_path)
    merge(connection, topic(connection, "importer"), topic(connection, "gauges"))
    merge(connection, topic(connection, "berth-plan"), topic(connection, "tides"))
    add_leaf(connection, "Quay | It is of stone", days=1)
    mine(pool)
    whole = export._write

    def meanwhile(path: Path, text: str) -> None:
        if path.name == MANIFEST:
            for name in ("importer.md", "gauges.md", "quay.md"):
                (tmp_path / name).write_text("Edited.")
            (tmp_path / "tides.md").unlink(missing_ok=True)
            (tmp_path / "berth-plan.md").unlink(missing_ok=True)
        whole(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(export, "_write", meanwhile)
        report = export_wiki(connection, tmp_path)
    assert report.left_alone == ["gauges.md", "importer.md", "quay.md"]
    assert (report.written, report.removed) == ([INDEX, "berth-plan.md"], ["tides.md"])
    for _ in range(2):
        assert export_wiki(connection, tmp_path).left_alone == ["gauges.md", "importer.md", "quay.md"]
    assert {(tmp_path / name).read_text() for name in report.left_alone} == {"Edited."}


def test_a_file_that_another_export_has_written_meanwhile_is_ours(
    connection: Connection, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_leaf(connection, "Importer | It imports")
    mine(pool)
    whole = export._write

    def at_once(path: Path, text: str) -> None:
        if path.name == MANIFEST:
            monkeypatch.setattr(export, "_write", whole)
            export_wiki(connection, tmp_path)
        whole(path, text)

    monkeypatch.setattr(export, "_write", at_once)
    assert export_wiki(connection, tmp_path).left_alone == []
    add_leaf(connection, "Importer | It polls", days=1)
    mine(pool)
    assert export_wiki(connection, tmp_path).written == ["importer.md"]
