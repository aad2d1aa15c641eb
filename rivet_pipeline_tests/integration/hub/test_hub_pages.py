"""The hub's pages over real HTTP, read without scripts: what they show, what they refuse, how they are protected."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from rivet_pipeline.api.attempts import MOST_GUESSES, SECONDS_A_GUESS
from rivet_pipeline.api.hub.sign_in import COOKIE, issue
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.hub_reader import Reader, form_token, page
from rivet_pipeline_tests.hub_store import NOBODY, HubStore

TOKEN = "a-long-random-text-é"


@pytest.fixture(scope="module")
def closed_base(store_url: str, store: HubStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("closed")
    with running_api(Settings(home=home, api_token=SecretStr(TOKEN)), store_url) as address:
        yield address


@pytest.fixture
def stranger(closed_base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=closed_base, timeout=30) as opened:
        yield opened


def message_id(connection: Connection, event: str) -> str:
    row = connection.execute("SELECT id FROM ros_messages WHERE event_id = %s", [event]).fetchone()
    assert row is not None
    return str(row["id"])


def summary_id(connection: Connection, kind: str, store: HubStore) -> str:
    row = connection.execute(
        "SELECT id FROM ros_summaries WHERE kind = %s AND conversation_id = %s ORDER BY earliest_at LIMIT 1",
        [kind, store.plain],
    ).fetchone()
    assert row is not None
    return str(row["id"])


@pytest.fixture
def rows(store_url: str, store: HubStore) -> Iterator[Connection]:
    with connect(store_url) as opened:
        yield opened


def every_page(store: HubStore, rows: Connection) -> list[str]:
    return [
        "/hub",
        "/hub?q=sessions",
        "/hub?q=hostile",
        f"/hub/c/{store.plain}",
        f"/hub/c/{store.hostile}",
        f"/hub/s/{summary_id(rows, 'leaf', store)}",
        f"/hub/m/{message_id(rows, 'long')}/text",
        f"/hub/m/{message_id(rows, 'hc')}/text?part=tool_result",
        "/hub/timeline",
        "/hub/day/2026-03-02",
        "/hub/health",
        "/hub/review",
        "/hub/wiki",
        "/hub/wiki/session-store",
        "/hub/wiki/session-store/history",
        "/hub/keys",
    ]


def test_the_root_leads_to_the_hub(client: httpx.Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/hub")
    assert client.get("/docs").status_code == 200


def test_every_page_has_the_strict_policy_and_loads_only_its_own(
    client: httpx.Client, store: HubStore, rows: Connection
) -> None:
    for path in every_page(store, rows):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "img-src": "'self'",
            "font-src": "'self'",
            "connect-src": "'self'",
            "form-action": "'self'",
            "frame-ancestors": "'none'",
            "base-uri": "'none'",
        }
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        read = Reader(answer.text)
        loaded = read.values("script", "src") + read.values("img", "src") + read.values("link", "href")
        assert loaded
        assert all(address.startswith("/hub/static/") for address in loaded), path
        assert sum(tag == "script" for tag, _ in read.tags) == 2
        assert sum(tag == "h1" for tag, _ in read.tags) == 1, path
        handlers = [
            name for _, attributes in read.tags for name in attributes if name.startswith("on") or name == "style"
        ]
        assert handlers == []


def test_every_link_of_a_page_leads_somewhere(client: httpx.Client, store: HubStore, rows: Connection) -> None:
    links = set()
    for path in every_page(store, rows):
        links |= {link.partition("#")[0] for link in page(client, path).values("a", "href")}
    inside = {link for link in links if link.startswith("/")}
    assert len(inside) > 30
    assert {link for link in links - inside if link and not link.startswith("http://127.0.0.1:3000")} == set()
    for link in sorted(inside)[::3]:
        assert client.get(link, follow_redirects=True).status_code == 200, link


def test_a_hostile_transcript_is_text_everywhere(client: httpx.Client, store: HubStore, rows: Connection) -> None:
    for path in (
        f"/hub/c/{store.hostile}",
        "/hub?q=hostile",
        "/hub",
        f"/hub/m/{message_id(rows, 'hc')}/text?part=tool_result",
        f"/hub/m/{message_id(rows, 'hc')}/text?part=tool_args",
        f"/hub/m/{message_id(rows, 'h1')}/text",
    ):
        answer = client.get(path)
        read = Reader(answer.text)
        assert "fire(" in read.words, path
        assert not [tag for tag, _ in read.tags if tag in {"style", "iframe", "object", "base"}]
        attributes = " ".join(
            f"{name}={value}"
            for _, found in read.tags
            for name, value in found.items()
            if name not in {"value", "title"}
        )
        assert "fire(" not in attributes, path
        assert "javascript:" not in attributes
        assert "evil.example" not in attributes
        assert "\x1b" not in answer.text
        assert "\u202e" not in answer.text


def test_the_search_shows_hits_with_marks_and_reasons(client: httpx.Client) -> None:
    read = page(client, "/hub", q="sessions postgres")
    assert len(read.values("a", "data-open")) == 20
    assert [tag for tag, _ in read.tags if tag == "mark"]
    assert "Why this rank" in read.words
    assert re.search("words\\s*[01][.]\\d\\d\\s*\N{MULTIPLICATION SIGN} 0[.]3", read.words)
    assert "Sources (10 messages)" in page(client, "/hub", q="sessions postgres", scope="summaries").words
    assert "Results are found and ranked by words alone." in read.words


def test_the_filters_narrow_and_stay_chosen(client: httpx.Client) -> None:
    read = page(client, "/hub", q="sessions", agent="codex<i>", scope="messages", mode="fts", window="")
    chosen = [attributes.get("value") for tag, attributes in read.tags if tag == "option" and "selected" in attributes]
    assert chosen == [None, "messages", "fts"]
    assert "without the filter on agent and scope" in read.words
    # Nor does the form say that any agent was asked for where nobody has the name.
    form = client.get("/hub?q=sessions&agent=nobody<b>").text
    assert "<option selected>nobody&lt;b&gt;</option>" in form
    assert len(page(client, "/hub", q="postgres", scope="summaries").values("details", "hx-get")) > 3


@pytest.mark.parametrize("odd", [{"scope": "all"}, {"mode": "magic"}, {"unknown": "1"}, {"q": " "}])
def test_an_old_or_odd_address_still_gives_a_page(client: httpx.Client, odd: dict[str, str]) -> None:
    assert client.get("/hub", params={"q": "sessions"} | odd).status_code == 200


def test_what_is_wrong_is_said_on_a_page(client: httpx.Client) -> None:
    answer = client.get("/hub", params={"q": "x", "window": "next year"})
    assert answer.status_code == 400
    assert "choose one of today" in Reader(answer.text).words
    assert client.get("/hub", params={"q": "x" * 3000}).status_code == 400
    assert "is no month" in Reader(client.get("/hub/timeline?month=<b>").text).words


@pytest.mark.parametrize(
    "path",
    [
        "/hub/nowhere",
        "/hub/c/none",
        f"/hub/c/{NOBODY}",
        f"/hub/m/{NOBODY}",
        f"/hub/m/{NOBODY}/text",
        f"/hub/s/{NOBODY}",
        f"/hub/s/{NOBODY}/conversation",
        "/hub/s/<script>",
        "/hub/day/2026-02-31",
        "/hub/wiki/nothing",
        "/hub/wiki/nothing/history",
        "/hub/static/nothing.css",
        "/hub/static/..%2fpages.py",
        "/hub/static/VENDORED.md",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "That did not work" in answer.text
    assert "<script>" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("number", ["0", "-1", "x", "99999999999999999999"])
def test_a_page_number_that_is_none(client: httpx.Client, store: HubStore, number: str) -> None:
    assert client.get(f"/hub/c/{store.plain}", params={"page": number}).status_code in {200, 400}


def test_a_conversation_is_read_in_pages(client: httpx.Client, store: HubStore) -> None:
    first = page(client, f"/hub/c/{store.plain}")
    assert "Page 1 of 3" in first.words
    assert "Question 0:" in first.words
    assert "times in Europe/Berlin" in first.words
    assert "10:00 CET" in first.words
    assert len(first.values("article", "id")) == 60
    last = page(client, f"/hub/c/{store.plain}", page=1000)
    assert "Page 3 of 3" in last.words
    assert len(last.values("article", "id")) == 10
    assert "Part 128 keeps them" in last.words


def test_tool_calls_and_thinking_are_folded_and_long_texts_cut(client: httpx.Client, store: HubStore) -> None:
    html = client.get(f"/hub/c/{store.plain}").text
    call = html.split("psql -c")[0].rsplit("<article", 1)[1]
    assert "<details>" in call
    assert "Bash" in call
    thought = html.split("I wonder about the port.")[0].rsplit("<article", 1)[1]
    assert "<details>" in thought
    assert "Show all 13,500 characters" in html
    assert "<strong>not</strong>" in html


def test_the_whole_of_a_long_text_is_a_page_and_a_fragment(client: httpx.Client, rows: Connection) -> None:
    path = f"/hub/m/{message_id(rows, 'long')}/text"
    whole = client.get(path)
    assert whole.text.count("A long report.") == 900
    assert "<html" in whole.text
    part = client.get(path, headers={"HX-Request": "true"})
    assert part.text.count("A long report.") == 900
    assert "<html" not in part.text
    assert "HX-Request" in part.headers["vary"]
    assert client.get(path, params={"part": "metadata"}).status_code == 400
    assert "13,500 characters, from 13,000" in Reader(client.get(path, params={"offset": 13_000}).text).words


def test_a_message_and_its_summary_lead_to_each_other(client: httpx.Client, store: HubStore, rows: Connection) -> None:
    late = message_id(rows, "a100")
    answer = client.get(f"/hub/m/{late}")
    assert answer.headers["location"] == f"/hub/c/{store.plain}?page=2#m-{late}"
    read = page(client, f"/hub/c/{store.plain}", page=2)
    leaf_links = [link for link in read.values("a", "href") if link.startswith("#s-")]
    assert set(leaf_links) <= {f"#{identity}" for identity in read.values("details", "id")}
    assert len(leaf_links) == 60
    leaf = leaf_links[0].removeprefix("#s-")
    summary = page(client, f"/hub/s/{leaf}")
    assert [link for link in summary.values("a", "class") if link == "jump"]
    back = client.get(f"/hub/s/{leaf}/conversation").headers["location"]
    assert re.fullmatch(rf"/hub/c/{store.plain}\?page=[12]#s-{leaf}", back)


def test_a_branch_names_its_leaves_and_every_line_its_message(
    client: httpx.Client, store: HubStore, rows: Connection
) -> None:
    branch = summary_id(rows, "branch", store)
    read = page(client, f"/hub/s/{branch}")
    assert "Made of 8 summaries" in read.words
    jumps = [attributes["href"] for tag, attributes in read.tags if tag == "a" and attributes.get("class") == "jump"]
    lines = sum(tag == "p" and (attributes.get("class") or "").startswith("line") for tag, attributes in read.tags)
    assert lines > 3
    assert len(jumps) == lines
    known = {str(row["id"]) for row in rows.execute("SELECT id FROM ros_messages").fetchall()}
    assert {str(jump).removeprefix("/hub/m/") for jump in jumps} <= known


def test_the_timeline_shows_days_and_how_far_they_are(client: httpx.Client) -> None:
    read = page(client, "/hub/timeline")
    assert "March 2026" in read.words
    assert "2 conversations, 141 messages" in read.words
    assert read.values("a", "href").count("/hub/day/2026-03-02") == 2
    assert "messages: 3 pending" in read.words or "messages: 2 pending" in read.words
    assert "Nothing began in February 2026" in page(client, "/hub/timeline", month="2026-02").words
    assert "1 conversation, 11 messages" in page(client, "/hub/timeline", agent="codex<i>").words


@pytest.mark.parametrize("month", ["0001-01", "9999-12", "2022-11"])
def test_the_calendar_has_two_ends(client: httpx.Client, month: str) -> None:
    assert client.get("/hub/timeline", params={"month": month}).status_code == 200


def test_a_day_names_its_stages_with_their_partition_in_dagster(client: httpx.Client) -> None:
    read = page(client, "/hub/day/2026-03-02")
    assert "http://127.0.0.1:3000/assets/leaf_summaries?view=partitions&partition=2026-03-02" in read.values(
        "a", "href"
    )
    assert re.search(r"leaf summaries\s*14", read.words)
    assert "noise" in read.words
    assert "None began on this day" in page(client, "/hub/day/2026-03-03").words
    assert client.get("/hub/day/0001-01-01").status_code == 200


def test_health_puts_alerts_first(client: httpx.Client, rows: Connection) -> None:
    assert "no embedding model serves" in page(client, "/hub/health").words.partition("Queues")[0]
    rows.execute(
        """INSERT INTO ros_failures (stage, item, cause, error, day, next_attempt_at)
           VALUES ('leaf_summaries', 'x', 'content', 'would <b>rather</b> not', '2026-03-02', NULL)"""
    )
    try:
        answer = client.get("/hub/health")
        read = Reader(answer.text)
        assert read.words.index("leaf_summaries: 1 items fail") < read.words.index("Queues")
        assert "would <b>rather</b> not" in read.words
        assert "Search has not been measured yet." in read.words
        assert "http://127.0.0.1:3000/assets/retrieval_quality" in read.values("a", "href")
        assert "svg" in {tag for tag, _ in read.tags}
        assert "leaf summaries: 1 failing" in page(client, "/hub/timeline").words
        assert "given up" in page(client, "/hub/day/2026-03-02").words
    finally:
        rows.execute("DELETE FROM ros_failures")


def test_health_draws_how_good_search_was_and_tells_of_a_fall(client: httpx.Client, rows: Connection) -> None:
    rows.execute(
        """INSERT INTO ros_retrieval_quality
           SELECT now() - (3 - n) * interval '1 day', 'demo', 52, '<i>model</i>',
                  jsonb_build_object('turn_recall@10', 0.9 - 0.1 * n, 'session_recall@5', 0.95, 'turn_ndcg@10', 0.6)
           FROM generate_series(1, 3) AS n"""
    )
    try:
        answer = client.get("/hub/health")
        read = Reader(answer.text)
        assert "search finds less than it did: turn recall@10 is 0.60" in read.words.partition("Queues")[0]
        assert '<title id="retrieval-title">How well search finds what it should</title>' in answer.text
        assert "messages found (recall@10): 80%, at the end 60%." in read.words
        table = read.words.partition("Retrieval quality over time")[2].partition("Summary quality")[0]
        assert re.search(r"0\.95\s*0\.60\s*0\.60", table)
        assert "<i>model</i>" in table
        assert "Search has not been measured yet." not in read.words
    finally:
        rows.execute("DELETE FROM ros_retrieval_quality")


def test_files_are_kept_by_a_browser_for_as_long_as_they_are_the_same(client: httpx.Client) -> None:
    address = page(client, "/hub").values("link", "href")[1]
    answer = client.get(address)
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    assert client.get("/hub/static/hub.css").headers["cache-control"] == "no-cache"


def test_the_appearance_is_kept_in_a_cookie(client: httpx.Client) -> None:
    token = form_token(page(client, "/hub/health"))
    answer = client.post("/hub/theme", data={"theme": "dark", "next": "/hub/health", "form_token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/hub/health")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert page(client, "/hub/health").values("html", "data-theme") == ["dark"]
    client.post("/hub/theme", data={"theme": "neon", "next": "https://evil.example", "form_token": token})
    assert page(client, "/hub").values("html", "data-theme") == ["auto"]


@pytest.mark.parametrize("sent", [None, "", "0" * 64, "é"])
def test_a_form_without_our_token_is_refused(client: httpx.Client, sent: str | None) -> None:
    data = {"theme": "dark"} | ({} if sent is None else {"form_token": sent})
    answer = client.post("/hub/theme", data=data)
    assert answer.status_code == 403
    assert "out of date" in answer.text
    assert "set-cookie" not in answer.headers


def test_a_form_with_files_or_of_another_origin_is_refused(client: httpx.Client) -> None:
    token = form_token(page(client, "/hub"))
    files = client.post("/hub/theme", files={"form_token": (None, token), "theme": ("a.txt", b"dark")})
    assert files.status_code == 415
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.post("/hub/theme", data={"theme": "dark", "form_token": token}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert client.get("/hub", headers=framed).status_code == 403
    assert client.get("/hub", headers={"Host": "evil.example"}).status_code == 421


def test_a_stranger_is_led_to_the_sign_in_page_and_back(stranger: httpx.Client) -> None:
    answer = stranger.get("/hub/day/2026-03-02?page=1")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/hub/sign-in?next=/hub/day/2026-03-02%3Fpage%3D1"
    read = page(stranger, answer.headers["location"])
    assert "RIVETOS_API_TOKEN" in read.words
    sent = {"form_token": form_token(read), "next": "/hub/day/2026-03-02?page=1"}
    wrong = stranger.post("/hub/sign-in", data=sent | {"token": "guess"})
    assert wrong.status_code == 403
    assert "That is not the token." in wrong.text
    assert "guess" not in wrong.text
    right = stranger.post("/hub/sign-in", data=sent | {"token": TOKEN})
    assert (right.status_code, right.headers["location"]) == (303, "/hub/day/2026-03-02?page=1")
    cookie = right.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Monday, 2 March 2026" in page(stranger, right.headers["location"]).words


def test_the_cookie_opens_pages_only_and_signing_out_ends_it(stranger: httpx.Client) -> None:
    read = page(stranger, "/hub/sign-in")
    stranger.post("/hub/sign-in", data={"form_token": form_token(read), "token": TOKEN})
    assert stranger.cookies.get(COOKIE)
    here = page(stranger, "/hub/health")
    value = stranger.cookies.get(COOKIE) or ""
    assert stranger.get("/api/memory/stats", headers={"Cookie": f"{COOKIE}={value}"}).status_code == 401
    # A form token of before the signing in is of no use after it.
    assert stranger.post("/hub/theme", data={"form_token": form_token(read)}).status_code == 403
    assert stranger.post("/hub/sign-out", data={"form_token": form_token(here)}).status_code == 303
    assert stranger.get("/hub/health").status_code == 303


def test_the_start_and_the_api_page_lead_a_browser_to_the_sign_in_page(stranger: httpx.Client) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml"}
    for path in ("/", "/docs"):
        assert stranger.get(path).status_code == 401
        answer = stranger.get(path, headers=browser)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/hub/sign-in?next={path}")
        assert stranger.get(path, headers=browser | {"Authorization": "Bearer wrong"}).status_code == 401
    assert stranger.get("/openapi.json").status_code == 401
    read = page(stranger, "/hub/sign-in?next=/docs")
    answer = stranger.post("/hub/sign-in", data={"form_token": form_token(read), "next": "/docs", "token": TOKEN})
    assert answer.headers["location"] == "/docs"
    assert stranger.get("/docs").status_code == 200
    assert stranger.get("/openapi.json").status_code == 200
    assert stranger.get("/").headers["location"] == "/hub"
    # The cookie reads these and nothing more.
    assert stranger.post("/docs").status_code == 401
    for path in ("/api/memory/stats", "/api/tools", "/mcp", "/docs/", "/openapi.json/", "/openapi.yaml"):
        assert stranger.get(path, headers=browser).status_code == 401
        assert stranger.post(path, json={}).status_code == 401


def test_nothing_but_the_sign_in_page_is_open(stranger: httpx.Client, store: HubStore) -> None:
    for path in ("/hub", f"/hub/c/{store.plain}", "/hub/nowhere", "/hub/keys"):
        assert stranger.get(path).status_code == 303
    assert stranger.post("/hub/theme", data={}).status_code == 401
    assert stranger.get("/hub", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert stranger.get("/hub", headers=[(b"Authorization", f"Bearer {TOKEN}".encode())]).status_code == 200
    assert stranger.get("/hub/static/hub.css").status_code == 200
    assert stranger.get("/hubris").status_code == 401


def test_a_cookie_is_no_way_to_guess_the_token(stranger: httpx.Client) -> None:
    for key in (TOKEN.encode(), b""):
        forged = {"Cookie": f"{COOKIE}={issue(key, time.time())}"}
        assert stranger.get("/hub/health", headers=forged).status_code == 303


def test_a_browser_stays_signed_in_over_a_restart(store_url: str, store: HubStore, tmp_path: Path) -> None:
    closed = Settings(home=tmp_path, api_token=SecretStr(TOKEN))
    with running_api(closed, store_url) as address, httpx.Client(base_url=address, timeout=30) as opened:
        opened.post("/hub/sign-in", data={"form_token": form_token(page(opened, "/hub/sign-in")), "token": TOKEN})
        cookie = {"Cookie": f"{COOKIE}={opened.cookies[COOKIE]}"}
    with running_api(closed, store_url) as address:
        assert httpx.get(f"{address}/hub/health", headers=cookie, timeout=30).status_code == 200
    with running_api(closed.model_copy(update={"api_token": SecretStr("another")}), store_url) as address:
        assert httpx.get(f"{address}/hub/health", headers=cookie, timeout=30).status_code == 303


def test_the_token_may_be_guessed_only_so_often(store_url: str, store: HubStore, tmp_path: Path) -> None:
    closed = Settings(home=tmp_path, api_token=SecretStr(TOKEN))
    with running_api(closed, store_url) as address, httpx.Client(base_url=address, timeout=30) as opened:
        read = page(opened, "/hub/sign-in")
        sent = {"form_token": form_token(read)}
        assert opened.post("/hub/sign-in", data=sent | {"token": TOKEN}).status_code == 303
        with httpx.Client(base_url=address, timeout=30) as guesser:
            sent = {"form_token": form_token(page(guesser, "/hub/sign-in"))}
            for number in range(MOST_GUESSES):
                assert guesser.post("/hub/sign-in", data=sent | {"token": f"guess {number}"}).status_code == 403
            refused = guesser.post("/hub/sign-in", data=sent | {"token": TOKEN})
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["retry-after"]) <= SECONDS_A_GUESS
            assert "set-cookie" not in refused.headers
            assert "Too many wrong tokens were sent from your address; try again in" in refused.text
            # Programs are counted together with browsers, and told in their own way.
            bearer = {b"Authorization": f"Bearer {TOKEN}".encode()}
            program = guesser.get("/api/memory/stats", headers=bearer)
            assert program.status_code == 429
            assert program.headers["content-type"] == "application/problem+json"
            assert program.json()["title"] == "Too Many Requests"
            assert 1 <= int(program.headers["retry-after"]) <= SECONDS_A_GUESS
            assert guesser.get("/healthz").status_code == 200
            assert guesser.get("/api/memory/stats").status_code == 401
        # Who is signed in stays so.
        assert opened.get("/hub/health").status_code == 200


def test_an_empty_store_says_what_to_do(database_url: str) -> None:
    with running_api(Settings(), database_url) as address, httpx.Client(base_url=address, timeout=30) as opened:
        assert "The memory is empty" in page(opened, "/hub").words
        for path in ("/hub?q=anything", "/hub/timeline", "/hub/health", "/hub/review", "/hub/wiki"):
            assert opened.get(path).status_code == 200


def test_a_store_that_is_away_is_a_page_that_says_so(server: EmbeddedServer, database_url: str) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    with running_api(Settings(), database_url) as address, connect(server.url("postgres")) as admin:
        admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        answer = httpx.get(f"{address}/hub", timeout=60)
        assert answer.status_code == 503
        assert "The database can not be reached" in answer.text
        assert answer.headers["retry-after"] == "5"
        admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")


@pytest.mark.parametrize(
    "path",
    ["/hub?q={}", "/hub?q=a&agent={}", "/hub?agent={}", "/hub?tag={}", "/hub?q=a&tag={}", "/hub?window={}", "/hub/c/{}",
     "/hub/s/{}", "/hub/m/{}", "/hub/m/{}/text", "/hub/wiki?q={}", "/hub/wiki?page={}", "/hub/wiki/{}",
     "/hub/wiki/{}/history", "/hub/timeline?month={}", "/hub/timeline?agent={}", "/hub/day/{}",
     "/hub/day/2026-03-02?page={}", "/hub/review?done={}", "/hub/sign-in?next={}", "/hub/static/{}"],
)  # fmt: skip
def test_no_address_can_bring_a_page_down(client: httpx.Client, path: str) -> None:
    for value in ("%00", "a%00b", "%ED%A0%80", str(2**63), "-1", "%25", "%0D%0AX:y", "a" * 3000):
        assert client.get(path.format(value)).status_code < 500, value


def test_filters_hold_without_words_too(client: httpx.Client, store: HubStore) -> None:
    def listed(query: str) -> set[str]:
        links = page(client, f"/hub?{query}").values("a", "href")
        return {link.removeprefix("/hub/c/") for link in links if link.startswith("/hub/c/")}

    whole = listed("")
    assert str(store.plain) in whole
    assert listed("window=yesterday") == set()
    assert "No conversation is within these filters" in page(client, "/hub?tag=project:nowhere").words
    assert "The memory is empty" not in page(client, "/hub?agent=nobody").words
    assert client.get("/hub?tag=no-tag").status_code == 400
    assert client.get("/hub?window=soon").status_code == 400
