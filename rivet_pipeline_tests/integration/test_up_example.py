"""The example that `rivet up` shows, asked of a real API."""

from __future__ import annotations

from io import StringIO

from pydantic import SecretStr
from rich.console import Console

from rivet_pipeline.cli.up import _print_example
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_message


def test_the_example_is_asked_with_a_token_beyond_ascii(database_url: str, connection: Connection) -> None:
    conversation = add_conversation(connection)
    connection.execute("UPDATE ros_conversations SET title = 'lamp' WHERE id = %s", [conversation])
    add_message(connection, "The lamp is green", conversation=conversation)
    settings = Settings(api_token=SecretStr("voilà"))
    out = StringIO()
    with running_api(settings, database_url) as base:
        _print_example(settings, database_url, base, Console(file=out, width=200))
    assert 'rivet search "lamp"' in out.getvalue()
    assert "The lamp is green" in out.getvalue()
