"""The `rivet` command in the tests' own process, on a test's own store: what one call did."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.cli import main as cli
from rivet_pipeline.settings import get_settings


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


Run = Callable[..., Ran]


@contextmanager
def rivet_command(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    before: tuple[str, ...] = (),
    columns: int = 160,
) -> Iterator[Run]:
    """Runs `rivet` with `before` and the given words, in a wide terminal."""

    def call(*words: str, **environment: str) -> Ran:
        for name, value in {
            "RIVETOS_PG_URL": database_url,
            "RIVETOS_HOME": str(tmp_path / "home"),
            "RIVETOS_TIMEZONE": "Europe/Berlin",
            "COLUMNS": str(columns),
            **environment,
        }.items():
            monkeypatch.setenv(name, value)
        get_settings.cache_clear()
        monkeypatch.setattr(sys, "argv", ["rivet", *before, *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return Ran(int(left.value.code or 0), captured.out, captured.err)

    yield call
    get_settings.cache_clear()
