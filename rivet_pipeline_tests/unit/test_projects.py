"""Which project a folder belongs to: real folders as git leaves them, and folders that are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from rivet_pipeline.transcripts import projects
from rivet_pipeline.transcripts.projects import planned_settings, project_of


def repository(folder: Path, url: str | None = None, *, config: str | None = None) -> Path:
    """A repository's folder, as far as it matters here."""
    (folder / ".git").mkdir(parents=True)
    remote = "" if url is None else f'[remote "upstream"]\n\turl = x/other.git\n[remote "origin"]\n\turl = {url}\n'
    (folder / ".git" / "config").write_text(config if config is not None else f"[core]\n\tbare = false\n{remote}")
    return folder


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/team/shop.git",
        "https://example.org/team/shop/",
        "https://ada:secret@example.org/team/shop.git?x=1#y",
        "git@example.org:team/shop.git",
        "git@example.org:shop",
        "ssh://git@example.org:2222/~ada/shop.git",
        "/srv/git/shop.git",
        "../shop.git/",
        "/srv/code/shop/.git",
        "../shop/.git/",
        "/media/stick/shop.bundle",
        "codecommit::eu-west-1://shop",
        r"C:\repos\shop.git",
        '"https://example.org/team/shop.git" ; the main one',
    ],
)
def test_the_remotes_name_wins_in_any_spelling(tmp_path: Path, url: str) -> None:
    folder = repository(tmp_path / "my-copy", url)
    (folder / "src" / "deep").mkdir(parents=True)
    assert project_of(str(folder)) == "shop"
    assert project_of(f"  {folder}/src/deep/../deep/ ") == "shop"


@pytest.mark.parametrize(
    "config",
    [
        "",
        '[remote "upstream"]\n\turl = https://example.org/team/other.git\n',
        '[remote "origin"]\n\turl =\n',
        '[remote "origin"]\n\turl = /\n',
        '[remote "origin"]\n\turl = .git\n',
        '[remote "origin"]\n\turl = https://example.org:8443/\n',
        "\x00\ufffd[[[",
        "x" * 300_000,
    ],
)
def test_without_a_remote_the_repositorys_folder_counts(tmp_path: Path, config: str) -> None:
    folder = repository(tmp_path / "shop", config=config)
    (folder / "src").mkdir()
    assert project_of(str(folder / "src")) == "shop"


def test_a_section_and_its_url_may_share_a_line(tmp_path: Path) -> None:
    folder = repository(tmp_path / "copy", config='[Remote "origin"] URL = git@example.org:team/shop.git\n')
    assert project_of(str(folder)) == "shop"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_worktrees_and_submodules_as_git_makes_them(tmp_path: Path) -> None:
    def git(folder: Path, *arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)

    main, part = tmp_path / "shop", tmp_path / "widgets"
    for folder in (main, part):
        folder.mkdir()
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-q", str(tmp_path / "elsewhere" / "feature"))
    git(main, "submodule", "add", "-q", str(part), "vendor/parts")
    git(main, "submodule", "add", "-q", str(part), "worktrees/lib")
    git(tmp_path, "clone", "-q", "--bare", str(main), "store.git")
    git(tmp_path / "store.git", "worktree", "add", "-q", str(tmp_path / "of-bare"))
    assert project_of(str(tmp_path / "elsewhere" / "feature")) == "shop"
    assert {project_of(str(main / part)) for part in ("vendor/parts", "worktrees/lib")} == {"widgets"}
    assert project_of(str(tmp_path / "of-bare")) == "shop"
    git(main, "remote", "add", "origin", "git@example.org:team/storefront.git")
    assert project_of(str(tmp_path / "elsewhere" / "feature")) == "storefront"


def test_a_name_is_taken_out_of_an_address_as_people_read_it(tmp_path: Path) -> None:
    folder = repository(tmp_path / "copy", "https://dev.example.org/ada/My%20Team/_git/My%20Shop")
    assert project_of(str(folder)) == "My Shop"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_repositories_without_a_working_copy_as_git_makes_them(tmp_path: Path) -> None:
    def git(folder: Path, *arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)

    main, store, inside = tmp_path / "shop", tmp_path / "store.git", tmp_path / "hub" / ".bare"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    git(tmp_path, "clone", "-q", "--bare", str(main), str(inside))
    git(inside, "remote", "remove", "origin")
    (tmp_path / "hub" / ".git").write_text("gitdir: ./.bare\n")
    git(tmp_path / "hub", "worktree", "add", "-q", str(tmp_path / "hub" / "feature"))
    git(tmp_path, "init", "-q", "--bare", str(store))
    assert {project_of(str(tmp_path / "hub" / part)) for part in ("", "feature", ".bare/refs")} == {"hub"}
    assert {project_of(str(store / part)) for part in ("", "refs")} == {"store"}
    assert {project_of(str(main / ".git" / part)) for part in ("", "hooks")} == {"shop"}


def test_a_worktree_whose_main_repository_is_gone_keeps_its_name(tmp_path: Path) -> None:
    for number, pointer in enumerate(["/nowhere/shop/.git", "../shop/.git", "/nowhere/shop.git", "C:/src/shop/.git"]):
        folder = tmp_path / f"feature-{number}"
        folder.mkdir()
        (folder / ".git").write_text(f"gitdir: {pointer}/worktrees/feature\n")
        assert project_of(str(folder)) == "shop"


def test_a_folder_without_git_is_its_own_project(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert project_of(str(tmp_path / "notes")) == "notes"


def test_a_folder_that_is_gone_keeps_its_name(tmp_path: Path) -> None:
    folder = repository(tmp_path / "shop", "git@example.org:team/storefront.git")
    assert project_of(str(folder / "gone" / "api")) == "api"
    assert project_of("/srv/nowhere/shop") == "shop"
    assert project_of("/w") == "w"
    assert project_of(r"C:\work\shop") == "shop"


@pytest.mark.parametrize(
    "cwd",
    [
        "", " ", "/", "//", "/..", ".", "..", "shop", "./shop", "~", "~/shop", "ssh://host/shop", "//server/share/shop",
        r"\\server\share\shop", "C:\\", r"C:\Users\Ada", r"C:relative", "/home/ada", "/Users/ada/", "/home", "/root",
        "/a\x00b", "/" + "x" * 5000, "/tmp", "/tmp/", "/var/tmp", "/private/tmp", "/mnt/c", "/mnt/c/Users/ada",
        "/c/Users/ada", "/cygdrive/d/Users/ada/", "/export/home/ada", "/srv/half-\ufffd",
    ],
)  # fmt: skip
def test_what_is_no_project(cwd: str) -> None:
    assert project_of(cwd) is None


def test_a_home_is_no_project_even_with_a_repository_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    repository(tmp_path, "git@example.org:ada/dotfiles.git")
    (tmp_path / "notes").mkdir()
    assert project_of(str(tmp_path)) is None
    assert project_of(str(tmp_path / "notes")) == "notes"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_repository_beside_a_homes_files_is_not_called_by_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(folder: Path, *arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)

    home, made = tmp_path / "ada", tmp_path / "made"
    for folder in (home, made):
        folder.mkdir()
    git(made, "init", "-q")
    git(made, "commit", "-q", "--allow-empty", "-m", "first")
    git(tmp_path, "clone", "-q", "--bare", str(made), str(home / ".dotfiles"))
    git(home / ".dotfiles", "remote", "remove", "origin")
    git(home / ".dotfiles", "worktree", "add", "-q", str(tmp_path / "desk"))
    shutil.copytree(made / ".git", home / ".git")
    git(home, "worktree", "add", "-q", str(tmp_path / "of-home"))
    monkeypatch.setenv("HOME", str(home))
    folders = (home / ".dotfiles", home / ".dotfiles" / "refs", tmp_path / "desk", tmp_path / "of-home")
    assert [project_of(str(folder)) for folder in folders] == [".dotfiles", ".dotfiles", ".dotfiles", "of-home"]


def test_damaged_pointers_fall_back_to_the_folder(tmp_path: Path) -> None:
    for number, pointer in enumerate(["", "nonsense", "gitdir: /nowhere/.git/modules/x", "gitdir: \x00"]):
        folder = tmp_path / f"copy-{number}"
        folder.mkdir()
        (folder / ".git").write_text(pointer)
        assert project_of(str(folder)) == f"copy-{number}"


def test_a_pipe_for_a_configuration_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    os.mkfifo(folder / ".git" / "config")
    assert project_of(str(folder)) == "shop"


def test_a_drive_that_hangs_costs_a_bounded_wait_and_then_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()
    monkeypatch.setattr(projects, "_SECONDS", 0.01)
    monkeypatch.setattr(projects, "_found", lambda path: hung.wait(60) and None)
    monkeypatch.setattr(projects, "_looks", threading.BoundedSemaphore(2))
    try:
        assert [project_of("/srv/shop") for _ in range(6)] == ["shop"] * 6
        assert sum(thread.name == "project" for thread in threading.enumerate()) == 2
    finally:
        hung.set()


@pytest.mark.parametrize("settings", [{}, {"cwd": None}, {"cwd": 7}, {"cwd": ["/srv/shop"]}, {"cwd": "/"}])
def test_settings_without_a_folder_plan_nothing(settings: dict[str, object]) -> None:
    assert planned_settings(settings) == {}
    assert planned_settings({**settings, "cwd": "/srv/nowhere/shop"}) == {"project": "shop"}
