"""Dagster's own programs over our definitions, and what becomes of a run that is killed with everything else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import httpx
import pytest

from rivet_pipeline.cli.processes import free_port
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.shipped import shipped
from rivet_pipeline_tests.embedding_server import Answer, EmbeddingServer
from rivet_pipeline_tests.end_to_end.conftest import Up, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


def test_dagster_validates_the_definitions_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    workspace = shipped("workspace.yaml")
    ran = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(workspace)],
        cwd=tmp_path,
        env={**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = ran.stdout + ran.stderr
    assert ran.returncode == 0, output
    assert "Validation successful for code location rivet_pipeline" in output
    warned = [line for line in output.splitlines() if "warning" in line.lower()]
    # Dagster would rather have its other command used, which is in a package of its own.
    assert [line for line in warned if "`definitions_validate_command` is superseded" not in line] == []


def test_a_run_that_was_killed_under_way_does_not_hold_its_days() -> None:
    asked, release = threading.Event(), threading.Event()

    def hold(texts: list[str]) -> Answer | None:
        if any("hangar" in text for text in texts):
            asked.set()
            release.wait(120)
        return None

    with (
        tempfile.TemporaryDirectory(prefix="rivet-killed-", ignore_cleanup_errors=True) as folder,
        EmbeddingServer(fault=hold) as server,
    ):
        up = Up(Path(folder) / "home", free_port(), free_port())
        models = {"RIVETOS_EMBED_URL": server.url, "RIVETOS_EMBED_MODEL": "stand-in"}
        try:
            up.start("--no-demo", **models)
            up.wait_for("Ready after")
            messages = [{"event_id": "e1", "role": "user", "content": "The hangar needs a roof."}]
            batch = {"session_key": "test:killed", "agent": "opus", "channel": "test", "messages": messages}
            assert httpx.post(f"{up.api}/api/capture", json=batch, timeout=30).status_code == 200
            assert asked.wait(60)
            up.kill_group()
            release.set()

            up.start("--no-demo", "--once", **models)
            assert up.process is not None
            until(lambda: up.process is None or up.process.poll() is not None, 150)
            assert up.process.returncode == 0, up.output
            # The server stops with `rivet up`; its rows are looked at through a server of our own.
            EmbeddedServer(up.home / "postgres").start()
            assert up.rows("SELECT count(*) AS n FROM ros_embeddings") == [{"n": 1}]
        finally:
            release.set()
            if up.process is not None and up.process.poll() is None:
                up.stop()
            EmbeddedServer(up.home / "postgres").stop()
