"""Small questions about what the transcript holds: whether there is anything at all, and what is newest."""

from __future__ import annotations

from pathlib import Path

from rivet_pipeline.db.pool import Connection


def holds_only(connection: Connection, folder: Path) -> bool:
    """Whether nothing has ever been captured but the transcripts below a folder."""
    row = connection.execute(
        "SELECT 1 FROM ros_conversations WHERE NOT starts_with(coalesce(settings ->> 'file', ''), %s) LIMIT 1",
        [f"{folder}/"],
    ).fetchone()
    return row is None


def latest_title(connection: Connection) -> str | None:
    """The title of the conversation that was active last, None when no conversation has one."""
    row = connection.execute(
        "SELECT title FROM ros_conversations WHERE title IS NOT NULL ORDER BY updated_at DESC, id LIMIT 1"
    ).fetchone()
    return row["title"] if row else None


def has_imported_from(connection: Connection, folder: Path) -> bool:
    """Whether import has read a file below a folder."""
    row = connection.execute(
        "SELECT 1 FROM ros_import_files WHERE starts_with(path, %s) LIMIT 1", [f"{folder}/"]
    ).fetchone()
    return row is not None


def known_projects(connection: Connection) -> list[Path]:
    """The folders in which agents have worked, as far as their conversations say."""
    rows = connection.execute(
        "SELECT DISTINCT settings ->> 'cwd' AS cwd FROM ros_conversations WHERE starts_with(settings ->> 'cwd', '/')"
    ).fetchall()
    return sorted(Path(row["cwd"]) for row in rows)


def holds_session(connection: Connection, session_key: str) -> bool:
    """Whether anything was ever captured under a session key."""
    row = connection.execute(
        "SELECT 1 FROM ros_conversations WHERE session_hash = md5(%s)::uuid LIMIT 1", [session_key]
    ).fetchone()
    return row is not None
