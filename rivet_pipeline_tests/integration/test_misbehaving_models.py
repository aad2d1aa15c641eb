"""A chat service that misbehaves in every way we know of: what is stored, what waits, what is said, what is asked.

After each of them the service mends its ways, and the summaries are made without anybody's help.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.models.chat import Endpoint, OpenAIChat
from rivet_pipeline.summaries.chat_summarizer import ChatSummarizer
from rivet_pipeline.summaries.compact import resummarize, summarize_leaves
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION
from rivet_pipeline_tests.integration.chat_server import GOOD, ChatServer, Reply, Script, chat_server, says

NEW_VERSION = SUMMARY_PIPELINE_VERSION + 1
BETTER = GOOD.replace("told about it", "told about it twice")

SENTENCE = "The service was deployed to the new host. "
CHINESE = (
    "**\u90e8\u7f72**\n- \u7528\u6237\u628a\u670d\u52a1\u90e8\u7f72\u5230\u4e86\u65b0\u7684\u4e3b\u673a\u4e0a"
    "\uff0c\u5e76\u4e14\u901a\u77e5\u4e86\u6240\u6709\u7684\u4eba\uff0c\u7136\u540e\u68c0"
    "\u67e5\u4e86\u65e5\u5fd7\u3002"
)
#: Half a megabyte that becomes 64 of them.
BOMB = gzip.compress(b'{"choices": [' + b" " * (64 * 1024 * 1024), compresslevel=1)


@dataclass(frozen=True)
class Case:
    """A way to misbehave, and what must be said of it.

    `calls` are the requests of a pass, whether it makes a new summary or makes one again.
    """

    script: Script
    cause: str
    name: str
    calls: int
    words: str = ""
    waits: timedelta = timedelta(seconds=20)
    deadline: float = 3600.0
    refused: bool = False


def always(reply: Reply) -> Script:
    return lambda _request: reply


def quoted(request: dict[str, Any]) -> str:
    """The transcript that the prompt quotes, from its first message on."""
    _, _, rest = request["messages"][1]["content"].partition("\n[#01 ")
    return "[#01 " + str(rest)


def rules(request: dict[str, Any]) -> str:
    return "\n".join(request["messages"][0]["content"].split("\n")[2:])


def transient(reply: Reply, name: str, words: str = "", **more: Any) -> Case:
    return Case(always(reply), "transient", name, more.pop("calls", 4), words, **more)


def permanent(reply: Reply, name: str, words: str = "") -> Case:
    return Case(always(reply), "permanent", name, 1, words, waits=timedelta(minutes=59))


def content(reply: Reply, name: str, words: str = "", calls: int = 1) -> Case:
    return Case(always(reply), "content", name, calls, words)


def too_much(reply: Reply, name: str, words: str = "") -> Case:
    """Ten messages, then five of them, two, one."""
    return Case(always(reply), "content", name, 4, words)


def no_summary(text: str, name: str) -> Case:
    """Asked once more with a reminder."""
    return content(says(text), name, "is no summary", calls=2)


def echo(answer: Callable[[str], str]) -> Case:
    """An answer that is made of the user text."""
    return Case(lambda request: says(answer(request["messages"][1]["content"])), "content", "prompt-echo", 2)


def preamble(prompt: str) -> str:
    """The conversation's id, agent, channel, span and count, as the prompt has them."""
    return "\n".join(line.strip() for line in prompt.split("\n")[3:8])


def bold(line: str) -> str:
    key, _, value = line.partition(": ")
    return f"- **{key}:** `{value}`\n"


def fence(prompt: str) -> str:
    return next(line for line in prompt.split("\n") if line.startswith("transcript "))


def in_ten_hours() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(hours=10), usegmt=True)


HTML = b"<html><body><h1>Bad gateway</h1></body></html>"
QUARTER = timedelta(minutes=14)

CASES = {
    # The way to the service.
    "connection refused": transient(Reply(), "unreachable", "refused", calls=0, refused=True),
    "hung up without an answer": transient(Reply(hang_up=True), "unreachable"),
    "reset in mid-body": transient(Reply(says(GOOD).body, reset_after=40), "unreachable"),
    "body shorter than its length": transient(Reply(b'{"choi', headers={"content-length": "900"}), "unreachable"),
    "a drip beyond the deadline": transient(
        Reply(says(GOOD).body, drip=0.02), "timeout", "no answer from", calls=1, deadline=0.3
    ),
    # Statuses.
    "302": permanent(Reply({}, 302, {"Location": "http://192.0.2.1/"}), "http-302"),
    "401": permanent(Reply({"error": {"message": "Incorrect API key provided"}}, 401), "http-401", "Incorrect API key"),
    "402": permanent(Reply({"error": "Insufficient credits"}, 402), "http-402", "Insufficient credits"),
    "403": permanent(Reply({"error": "not in your region"}, 403), "http-403", "region"),
    "404 unknown model": permanent(
        Reply({"error": {"message": "The model 'm' does not exist", "code": "model_not_found"}}, 404), "unknown-model"
    ),
    "404 wrong address": permanent(Reply(b"404 page not found", 404), "http-404", "page not found"),
    "408": transient(Reply({"error": "too slow"}, 408), "http-408"),
    "413": too_much(Reply({"error": "request entity too large"}, 413), "too-long"),
    "400 context length": too_much(
        Reply({"error": {"message": "maximum context length is 4096 tokens"}}, 400), "too-long", "4096"
    ),
    "422": content(Reply({"detail": [{"msg": "field required"}]}, 422), "http-422", "field required"),
    "425": transient(Reply({"error": "too early"}, 425), "http-425"),
    "429 without a pause": transient(Reply({"error": "rate limit"}, 429), "http-429", "rate limit"),
    "429 for seconds": transient(
        Reply({"error": "quota"}, 429, {"Retry-After": "900"}), "http-429", "quota", calls=1, waits=QUARTER
    ),
    "429 until a time": transient(
        Reply({"error": "quota"}, 429, {"Retry-After": in_ten_hours()}), "http-429", calls=1, waits=timedelta(hours=8)
    ),
    "429 for no time at all": transient(Reply({}, 429, {"Retry-After": "nan"}), "http-429"),
    "429 for ever": transient(
        Reply({}, 429, {"Retry-After": "inf"}), "http-429", calls=1, waits=timedelta(hours=23)
    ),
    "500": transient(Reply({"error": "CUDA out of memory"}, 500), "http-500", "CUDA out of memory"),
    "500 with a NUL in its words": transient(Reply(b"broken \x00 pipe \xff", 500), "http-500", "broken"),
    "502 with HTML": transient(Reply(HTML, 502, {"Content-Type": "text/html"}), "http-502", "Bad gateway"),
    "503 with JSON": transient(Reply({"error": {"message": "Loading model"}}, 503), "http-503", "Loading model"),
    "529": transient(Reply({"error": {"type": "overloaded_error"}}, 529), "http-529", "overloaded"),
    "502 of 20 MB": transient(Reply(b"x" * 20_000_000, 502), "http-502"),
    # 200, and no completion in it.
    "HTML": transient(Reply(HTML, headers={"Content-Type": "text/html"}), "bad-response", "Bad gateway"),
    "an empty body": transient(Reply(b""), "bad-response"),
    "an error object": transient(Reply({"error": {"message": "no healthy upstream"}}), "bad-response", "upstream"),
    "an error object with a status": permanent(
        Reply({"error": {"message": "Insufficient credits", "code": 402}}), "http-402", "Insufficient credits"
    ),
    "no choices": transient(Reply({"id": "x", "choices": []}), "bad-response"),
    "half a JSON": transient(Reply(json.dumps(says(GOOD).body).encode()[:60]), "bad-response"),
    "brackets without end": transient(Reply(b"[" * 200_000), "bad-response"),
    "another encoding": transient(
        Reply(json.dumps(says("\u00e9t\u00e9 " + GOOD).body, ensure_ascii=False).encode("latin-1")), "bad-response"
    ),
    "a packing nobody asked for": transient(
        Reply(b"\x0b\x02\x80", headers={"Content-Encoding": "br"}), "bad-response", "'br'"
    ),
    "a broken packing": transient(Reply(b"no gzip", headers={"Content-Encoding": "gzip"}), "bad-response"),
    "a bomb": content(Reply(BOMB, headers={"Content-Encoding": "gzip"}), "answer-too-large"),
    "a bomb in two layers": transient(
        Reply(gzip.compress(BOMB), headers={"Content-Encoding": "gzip, gzip"}), "bad-response", "gzip, gzip"
    ),
    "20 MB": content(says("word " * 4_000_000), "answer-too-large"),
    "broken off by the service": transient(says("The serv", finish="error"), "bad-response"),
    # A completion without an answer.
    "content null": content(says(None), "empty"),
    "content null beside reasoning": content(says(None, reasoning_content="The user wants a summary."), "empty"),
    "content empty": content(says(""), "empty"),
    "content blank": content(says(" \n\t\u2003"), "empty"),
    "cut off": too_much(says("The service was depl", finish="length"), "truncated", "max_tokens=7000"),
    "cut off, as others say it": too_much(says("The service was depl", finish="MAX_TOKENS"), "truncated"),
    "cut off in its thinking": too_much(says("<think>So much to thi", finish="length"), "truncated"),
    "a filter": content(says("", finish="content_filter"), "refusal", calls=2),
    "a refusal in its field": content(
        says(None, refusal="I can not help \ud800\x00 with that"), "refusal", "I can not help", calls=2
    ),
    "only thinking": content(says("<think>The user wants a summary.</think>"), "empty"),
    "thinking without end": content(says("<think>The user wants a summary. So"), "empty"),
    "a tool call in its field": content(
        says(None, tool_calls=[{"function": {"name": "Bash", "arguments": "{}"}}]), "wrong-shape", calls=2
    ),
    # An answer that is no summary.
    "a refusal": no_summary("I'm sorry, but I can't help with that request.", "refusal"),
    "a remark": no_summary("This isn't developer session output, it is a list of steps. Please send more.", "refusal"),
    "a placeholder": no_summary("Summary unavailable due to size limits.", "placeholder"),
    "an error text": no_summary("Error: upstream request timeout after 60 s", "error-answer"),
    "an error in JSON": no_summary('{"error": {"message": "overloaded"}}', "error-answer"),
    "two words": no_summary("All done.", "too-short"),
    "a little JSON": no_summary('{"foo": 1}', "wrong-shape"),
    "one sentence 200 times": no_summary(SENTENCE * 200, "repetition"),
    "JSON": no_summary('```json\n{"summary": "The service was deployed.", "topics": ["hosts"]}\n```', "wrong-shape"),
    "a tool call": no_summary(
        'I will look.\n<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call>', "wrong-shape"
    ),
    "the conversation continued": no_summary(
        "[#11 2026-04-18T12:11Z opus/assistant]\nI have changed src/part_10.py too. What shall I do next?",
        "wrong-shape",
    ),
    "another language": no_summary(CHINESE, "wrong-language"),
    "an echo of the transcript": Case(lambda request: says(quoted(request)[:600]), "content", "echo", 2),
    "an echo of the rules": Case(lambda request: says(rules(request)[:1500]), "content", "prompt-echo", 2),
    "an echo of the whole prompt": Case(
        lambda request: says(request["messages"][1]["content"]), "content", "prompt-echo", 2
    ),
    "an echo of the prompt on one line": echo(lambda prompt: f"Summary of what was said. {' '.join(prompt.split())}"),
    "the marker in the midst of a line": echo(lambda prompt: f"{GOOD} So the {prompt.splitlines()[0]} was answered."),
    "the marker abridged": echo(lambda _: f"{GOOD} [rivet-pipeline model request: \u2026] ---- \u2026"),
    "the task below a summary": echo(lambda prompt: f"{GOOD}\n{prompt.splitlines()[-1]}"),
    "a fence line in the midst of a line": echo(lambda prompt: f"{GOOD} ({fence(prompt)})"),
    "the preamble before a summary": echo(lambda prompt: f"{preamble(prompt)}\n\n{GOOD}"),
    "the preamble on one line": echo(lambda prompt: f"{GOOD} {' '.join(preamble(prompt).split())}"),
    "the preamble as a list": echo(lambda prompt: "".join(bold(line) for line in preamble(prompt).split("\n")) + GOOD),
    "two of the rules below a summary": Case(
        lambda request: says(f"{GOOD}\n" * 3 + "\n".join(rules(request).split("\n")[4:10])), "content", "prompt-echo", 2
    ),
}  # fmt: skip


def talk(connection: Connection) -> UUID:
    """Ten messages of a conversation that goes on."""
    row = connection.execute(
        """
        INSERT INTO ros_conversations (session_key, agent, channel, day, revision)
        VALUES ('test:1', 'opus', 'cli', current_date, 1) RETURNING id
        """
    ).fetchone()
    assert row is not None
    for number in range(10):
        connection.execute(
            """
            INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at)
            VALUES (%s, %s, 'opus', 'cli', %s, %s, now() - %s * interval '1 second')
            """,
            [
                row["id"],
                str(number),
                "assistant" if number % 2 else "user",
                f"Step {number} of the deployment changed file src/part_{number}.py on host db-{number}.",
                20 - number,
            ],
        )
    return UUID(str(row["id"]))


def one(connection: Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return next(iter(row.values()))


def stored(connection: Connection) -> tuple[list[str], int]:
    """The summaries' texts, and how many older ones are kept."""
    texts = connection.execute("SELECT content FROM ros_summaries ORDER BY seq").fetchall()
    return [row["content"] for row in texts], one(connection, "SELECT count(*) FROM ros_summary_revisions")


def pending(connection: Connection) -> int:
    return int(one(connection, "SELECT count(*) FROM ros_pending_leaf_summaries"))


def check_failure(connection: Connection, case: Case, item: str) -> None:
    failures = connection.execute("SELECT *, next_attempt_at - last_failed_at AS waits FROM ros_failures").fetchall()
    (failure,) = failures
    assert (failure["stage"], failure["cause"], failure["attempts"]) == ("leaf_summaries", case.cause, 1)
    assert failure["error"].startswith(f"{case.name}: ")
    assert case.words in failure["error"]
    assert failure["item"] == (item if case.cause == "content" else "service")
    assert case.waits <= failure["waits"] <= timedelta(hours=24)


def an_hour_later(connection: Connection) -> None:
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")


def summarizer(url: str, deadline: float = 3600.0) -> ChatSummarizer:
    return ChatSummarizer(OpenAIChat(url, "m", "own-secret-key", deadline, sleep=lambda _: None))


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_nothing_is_lost_and_nothing_false_is_stored(
    connection: Connection, pool: Pool, closed_port: int, case: Case
) -> None:
    conversation = talk(connection)
    with chat_server(case.script) as server:
        bad = summarizer(f"http://127.0.0.1:{closed_port}/v1" if case.refused else server.url, case.deadline)
        good = summarizer(server.url)

        report = summarize_leaves(pool, days=None, summarizer=bad)
        assert (report.rows, report.failures) == (0, 1)
        assert stored(connection) == ([], 0)
        check_failure(connection, case, str(conversation))
        assert len(server.asked) == case.calls

        # It rests: nothing is pending and nothing is asked before its time.
        assert pending(connection) == 0
        assert summarize_leaves(pool, days=None, summarizer=bad).model_calls == 0
        assert len(server.asked) == case.calls

        an_hour_later(connection)
        assert pending(connection) == 1
        server.script = always(says(GOOD))
        assert summarize_leaves(pool, days=None, summarizer=good).rows == 1
        assert stored(connection) == ([GOOD], 0)
        assert one(connection, "SELECT count(*) FROM ros_failures") == 0
        assert pending(connection) == 0

        check_redo(connection, pool, server, case, bad, good)


def check_redo(
    connection: Connection, pool: Pool, server: ChatServer, case: Case, bad: ChatSummarizer, good: ChatSummarizer
) -> None:
    """The same while a summary is made again: the older text stays until there is a better one."""
    server.script = case.script
    server.asked.clear()
    summary = str(one(connection, "SELECT id FROM ros_summaries"))

    redo = [resummarize(pool, days=None, summarizer=bad, version=NEW_VERSION, kinds=["leaf"]) for _ in range(2)]
    assert [(report.rows, report.failures) for reports in redo for report in reports] == [(0, 1), (0, 0)]
    assert stored(connection) == ([GOOD], 0)
    check_failure(connection, case, summary)
    assert len(server.asked) == case.calls

    an_hour_later(connection)
    server.script = always(says(BETTER))
    assert resummarize(pool, days=None, summarizer=good, version=NEW_VERSION, kinds=["leaf"])[0].rows == 1
    assert stored(connection) == ([BETTER], 1)
    assert one(connection, "SELECT count(*) FROM ros_failures") == 0


UTF_16 = json.dumps(says(GOOD).body, ensure_ascii=False).encode("utf-16")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (says(f"<think>The user wants a summary.</think>\n\n{GOOD}"), GOOD),
        (says(f"The user wants a summary.\n</think>\n\n{GOOD}"), GOOD),
        (says(f"[THINK]The user wants a summary.[/THINK]{GOOD}"), GOOD),
        (says(f"```markdown\n{GOOD}\n```"), GOOD),
        (says(GOOD + " \ud83d\x00 \ud83d\ude00"), GOOD + " \ufffd \U0001f600"),
        (Reply(says(GOOD).body, headers={"Content-Type": "text/html; charset=latin-1"}), GOOD),
        (Reply(UTF_16), GOOD),
        (Reply(gzip.compress(json.dumps(says(GOOD).body).encode()), headers={"Content-Encoding": "gzip"}), GOOD),
        (Reply({**says(GOOD).body, "model": "a\x00\ud800" + "b" * 999, "usage": {"prompt_tokens": 1e99}}), GOOD),
        (Reply({**says(GOOD).body, "usage": {"prompt_tokens": 10**30, "completion_tokens": -1}}), GOOD),
    ],
)  # fmt: skip
def test_odd_answers_that_hold_a_summary(connection: Connection, pool: Pool, reply: Reply, text: str) -> None:
    talk(connection)
    with chat_server(always(reply)) as server:
        assert summarize_leaves(pool, days=None, summarizer=summarizer(server.url)).rows == 1
        assert len(server.asked) == 1
    assert stored(connection) == ([text], 0)


def test_a_content_failure_stops_after_three_and_shows(connection: Connection, pool: Pool) -> None:
    talk(connection)
    with chat_server(always(says("<think>nothing but thoughts"))) as server:
        for _ in range(5):
            summarize_leaves(pool, days=None, summarizer=summarizer(server.url))
            connection.execute("UPDATE ros_failures SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
        assert len(server.asked) == 3
    assert one(connection, "SELECT next_attempt_at IS NULL FROM ros_failures")


def test_a_quota_of_hours_makes_nothing_permanent(connection: Connection, pool: Pool) -> None:
    talk(connection)
    with chat_server(always(Reply({"error": "quota"}, 429, {"Retry-After": "3600"}))) as server:
        for _ in range(30):
            summarize_leaves(pool, days=None, summarizer=summarizer(server.url))
            an_hour_later(connection)
        assert len(server.asked) == 30
        server.script = always(says(GOOD))
        assert summarize_leaves(pool, days=None, summarizer=summarizer(server.url)).rows == 1


# --- fallbacks ---


def with_fallback(first: ChatServer, second: ChatServer) -> ChatSummarizer:
    chat = OpenAIChat(first.url, "m", "own-secret-key", fallbacks=[Endpoint(second.url, "small")], sleep=lambda _: None)
    return ChatSummarizer(chat)


def test_a_fallbacks_summary_is_kept_and_says_who_wrote_it(connection: Connection, pool: Pool) -> None:
    talk(connection)
    reply = Reply({**says(GOOD).body, "model": "small-0.5b"})
    with chat_server(always(Reply({}, 503))) as first, chat_server(always(reply)) as second:
        assert summarize_leaves(pool, days=None, summarizer=with_fallback(first, second)).rows == 1
        row = connection.execute("SELECT model, metadata ->> 'answered_by' AS by FROM ros_summaries").fetchone()
        assert row == {"model": "m", "by": "small-0.5b"}
        # The first service is back: what the other wrote is not made again.
        first.script = always(says(BETTER))
        assert resummarize(pool, days=None, summarizer=with_fallback(first, second))[0].model_calls == 0
        assert stored(connection) == ([GOOD], 0)
    assert (len(first.asked), len(second.asked)) == (4, 1)
    assert "authorization" not in second.headers[0]


def test_a_fallbacks_bad_answers_do_not_use_up_the_tries(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection)
    with (
        chat_server(always(Reply({}, 401))) as first,
        chat_server(always(says("I'm sorry, I can't do that."))) as second,
    ):
        for number in range(1, 6):
            summarize_leaves(pool, days=None, summarizer=with_fallback(first, second))
            failure = connection.execute("SELECT item, cause, attempts, error FROM ros_failures").fetchone()
            assert failure is not None
            assert failure["error"].startswith("refusal: ")
            assert (failure["item"], failure["cause"], failure["attempts"]) == (str(conversation), "transient", number)
            an_hour_later(connection)
        first.script = always(says(GOOD))
        assert summarize_leaves(pool, days=None, summarizer=with_fallback(first, second)).rows == 1
    assert stored(connection) == ([GOOD], 0)


def test_all_services_down_is_one_failure_with_every_cause(connection: Connection, pool: Pool) -> None:
    talk(connection)
    with (
        chat_server(always(Reply({"error": "no such key"}, 401))) as first,
        chat_server(always(Reply({"error": "loading"}, 503))) as second,
    ):
        summarize_leaves(pool, days=None, summarizer=with_fallback(first, second))
    failure = connection.execute("SELECT item, cause, error FROM ros_failures").fetchone()
    assert failure is not None
    assert (failure["item"], failure["cause"]) == ("service", "transient")
    for words in ("m at http://127.0.0.1", "no such key", "small at http://127.0.0.1", "loading"):
        assert words in failure["error"]
