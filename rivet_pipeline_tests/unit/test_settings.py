"""The environment is read under the documented names and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from rivet_pipeline.settings import Settings, settings_problem


def test_the_home_is_under_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RIVETOS_HOME", raising=False)
    assert Settings().home == tmp_path / ".rivetos"


def test_every_variable_is_documented_and_its_field_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, field in Settings.model_fields.items():
        if field.validation_alias != name.upper():
            monkeypatch.setenv(name.upper(), "nonsense")
    monkeypatch.setenv("HOME", "/home/somebody")
    settings = Settings()
    assert settings.home == Path("/home/somebody/.rivetos")
    assert settings.timezone == "UTC"
    assert all(field.description for field in Settings.model_fields.values())


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVETOS_PG_URL", "")
    assert Settings().pg_url is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RIVETOS_API_PORT", "70000"),
        ("RIVETOS_TIMEZONE", "Mars/Olympus"),
        ("EXPECTED_DIMS", "x"),
        ("RIVETOS_FIRST_DAY", "2999-01-01"),
    ],
)
def test_a_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValidationError, match=variable):
        Settings()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"api_key": "s3cret"', "can not be read as JSON"),
        ('{"temperature": NaN, "api_key": "s3cret"}', "can not be read as JSON"),
        ('{"temperature": 1e999, "api_key": "s3cret"}', "can not be read as JSON"),
        ('{"api_key": "s3cret\\ud800"}', "can not be read as JSON"),
        ("[" * 100_000, "can not be read as JSON"),
        ('["s3cret"]', "no object"),
        ("null", "no object"),
        ('{"stream": true, "model": "s3cret", "top_k": 4}', "sets model, stream, which the pipeline decides"),
        ('{"messages": []}', "sets messages, which"),
        ('{"max_tokens": 5}', "sets max_tokens, which"),
        ('{"max_completion_tokens": 5, "n_predict": 9}', "sets max_completion_tokens, n_predict, which"),
    ],
)
def test_a_bad_extra_body_says_what_is_wrong_and_not_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, value: str, words: str
) -> None:
    monkeypatch.setenv("RIVETOS_COMPACTOR_EXTRA_BODY", value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    problem = settings_problem(caught.value)
    assert problem.startswith("RIVETOS_COMPACTOR_EXTRA_BODY is wrong: it ")
    assert words in problem
    assert "s3cret" not in problem


def test_the_extra_body_is_read_as_json_and_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVETOS_COMPACTOR_EXTRA_BODY", '{"top_k": 4, "chat_template_kwargs": {"key": "s3cret"}}')
    settings = Settings()
    assert settings.compactor_extra_body == {"top_k": 4, "chat_template_kwargs": {"key": "s3cret"}}
    assert "s3cret" not in repr(settings)


def test_secrets_do_not_show() -> None:
    settings = Settings.model_validate({"RIVETOS_PG_URL": "postgresql://u:secret@h/d", "RIVETOS_API_TOKEN": "secret"})
    assert "secret" not in repr(settings)


def test_a_token_that_no_header_can_carry_is_refused_and_what_stands_around_it_goes() -> None:
    for token in (" ", "\t", "two\nlines", "a\x00b"):
        with pytest.raises(ValidationError, match="no header can carry"):
            Settings.model_validate({"RIVETOS_API_TOKEN": token})
    kept = Settings.model_validate({"RIVETOS_API_TOKEN": " long random text\n"}).api_token
    assert kept is not None
    assert kept.get_secret_value() == "long random text"


@pytest.mark.parametrize(
    ("url", "elsewhere"),
    [
        (None, False),
        ("http://127.0.0.1:5174", False),
        ("http://localhost:5174/", False),
        ("http://[::1]:5174", False),
        ("https://memory.example.org", True),
        ("http://10.0.0.2:5174", True),
    ],
)
def test_it_is_known_whether_captures_go_to_another_machine(url: str | None, elsewhere: bool) -> None:
    assert Settings(api_url=url).captures_elsewhere is elsewhere
