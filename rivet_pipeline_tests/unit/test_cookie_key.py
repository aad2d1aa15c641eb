"""The key of the sign-in cookies: its secret stays, is this installation's alone, and never stops the service."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rivet_pipeline.api.hub.cookie_key import FILE_NAME, cookie_key

TOKEN = b"a long random text"


def test_the_key_stays_over_a_restart_and_changes_with_the_token(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = cookie_key(TOKEN, home)
    assert not home.exists(), "nothing is written before somebody signs in"
    assert first() == first() == cookie_key(TOKEN, home)()
    assert cookie_key(b"another", home)() != first()
    assert [entry.name for entry in home.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((home / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_another_installation_has_another_key(tmp_path: Path) -> None:
    assert cookie_key(TOKEN, tmp_path / "one")() != cookie_key(TOKEN, tmp_path / "two")()


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: cookie_key(TOKEN, tmp_path)(), range(32)))) == 1


def test_a_secret_that_can_not_be_kept_or_read_is_never_a_known_one(tmp_path: Path) -> None:
    file = tmp_path / "a file, no folder"
    file.write_text("")
    assert cookie_key(TOKEN, file)() != cookie_key(TOKEN, file)()
    (tmp_path / FILE_NAME).write_bytes(b"")
    assert cookie_key(TOKEN, tmp_path)() != cookie_key(TOKEN, tmp_path)()
