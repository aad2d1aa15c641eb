"""Queries that search tends to stumble over: what each must find, in every mode, and what it must not."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import numpy as np
import psycopg
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.retrieval import index_state
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import Mode, SearchRequest
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store
from rivet_pipeline_tests.integration.memory_rows import (
    add_conversation,
    add_message,
    add_summary,
    add_vector,
    find,
    hash_embed,
    ids,
    register_model,
)

#: Where a text stands, the text, and the queries that must find it in modes fts, hybrid, trigram and regex.
TABLE: list[tuple[str, str, list[str]]] = [
    # Hyphens and file names: whole and in parts.
    ("content", "we pinned vue-router in the lockfile", ["vue-router", "vue router", "router"]),
    ("content", "a grey t-shirt was ordered", ["t-shirt", "shirt"]),
    ("content", "attached scan-1987.tiff for the file", ["scan-1987.tiff", "scan-1987", "tiff"]),
    # Ids, versions, dates, numbers of models.
    ("content", "blocked by OPS-4711 since Monday", ["OPS-4711", "4711", "ops-4711"]),
    ("content", "hydra-2201b went down", ["hydra-2201b"]),
    ("content", "answered by qwen-7b-chat", ["qwen-7b-chat", "qwen-7b"]),
    ("content", "upgraded to 3.14.159 at noon", ["3.14.159"]),
    ("content", "the outage of 2025-11-23 is closed", ["2025-11-23"]),
    ("content", "exit code 0xC0DE77 from the loader", ["0xC0DE77"]),
    ("content", "the disk in pve-93 is full", ["pve-93"]),
    # Paths, places in files, symbols.
    (
        "content",
        "open lib/billing/invoice_store.rb first",
        ["lib/billing/invoice_store.rb", "invoice_store.rb", "invoice"],
    ),
    ("result", "Traceback: ledger_sync.py:88 in flush", ["ledger_sync.py:88", "ledger_sync", "ledger_sync.py"]),
    ("result", "at paint (/srv/ui/Canvas.tsx:42:13)", ["Canvas.tsx:42:13", "/srv/ui/Canvas.tsx", "paint"]),
    ("content", "rename fetchLedgerByName soon", ["fetchLedgerByName", "Ledger"]),
    ("content", "through api.fetchBadgeByCode(x)", ["fetchBadgeByCode"]),
    ("content", "each module has an __init__ of its own", ["__init__"]),
    ("content", "MAX_RETRY_COUNT is 9 there", ["MAX_RETRY_COUNT"]),
    ("content", "logo.webp is broken", ["logo", "logo.webp"]),
    # Every sign is a sign.
    ("content", "ping @esa_ops when it is done", ["@esa_ops"]),
    ("content", "they don't like k=v pairs", ["don't like", "k=v"]),
    ("content", "the bus does 12 GiB/s at 73% load", ["GiB/s", "73%"]),
    ("content", r"mounted at Q:\vault\keys", [r"Q:\vault", r"vault\keys"]),
    ("content", "use <abbr> in status:closed rows", ["<abbr>", "status:closed"]),
    ("content", "said 'quokka'; and -- dropped it", ["'quokka'; and --", "quokka"]),
    ("content", "case_7 differs from the others", ["case_7"]),
    ("content", "foo(bar[0], {baz: *ptr}) failed", ["bar[0]", "{baz: *ptr}"]),
    # Accents and forms, both ways.
    ("content", "ein caf\u00e9 am Platz", ["cafe\u0301", "caf\u00e9", "cafe"]),
    ("content", "zwei creme\u0300s bru\u0302le\u0301es", ["cr\u00e8mes", "br\u00fbl\u00e9es", "cremes"]),
    ("content", "die Größe der Straße", ["groesse"[:2] + "össe", "GRÖSSE", "strasse", "Größe"]),
    ("content", "flog nach İzmir zurück", ["izmir", "İzmir", "zuruck"]),
    ("content", "la república cambió de opinión", ["republica", "opinion", "OPINIÓN"]),
    # CJK, also of two characters, in texts, tool results and summaries.
    ("content", "我们昨天讨论了迁移计划", ["迁移", "计划", "迁移计划", "讨论"]),
    ("result", "备份任务已经完成。耗时三分钟", ["备份", "任务", "完成"]),
    ("summary", "总结。数据库的索引需要重建", ["索引", "重建", "数据库"]),
    ("content", "デプロイの手順書を更新した", ["手順", "更新"]),
    ("content", "배포 일정을 다시 확인했다", ["일정", "확인"]),
    # Neighbours of a word that no index takes.
    ("content", "before " + "z" * 2100 + " zeugmatic after", ["zeugmatic"]),
    # A word among more than a tsvector holds.
    ("content", "xanthic " + " ".join(f"{number:032x}" for number in range(40_000)), ["xanthic"]),
    ("summary", "Decided: the pgbouncer pool moves to db-07.internal", ["pgbouncer", "db-07.internal"]),
]

#: Queries that say nothing to search for by words: an empty answer with a reason, in every mode, but for the texts
#: themselves where they stand there.
SILENT = ["", "   ", "\t\n", "the", "of the", "&|!()", ":*", '"', "'", "\\", "%", "_", "。", "🚀", "…", "\u200b", "-->"]

#: Whatever they mean: never an error and never nothing without a reason.
STRANGE = [
    "to be or not to be", "'; DROP TABLE ros_messages;--", "foo & bar | !baz <-> qux", "%s %(name)s", "{braces}",
    "a\x00b", "\ud83d alone", "ok\udc00", "w" * 5000, "x y " * 3000, "a\tb\nc", "de\u0301", "1e999", "NULL", "$1",
    "-1234", "部", "Ω", "İ", "\u202eabc", "x" * 201, "ß" * 150, "C:\\", "foo\\", "100%", "%a_b%", "(", "*x",
    "<x>", "[z-a]", "((x{1,255}){1,255}){1,255}", "***=(", "(?#x)", "(a+)+$",
]  # fmt: skip

WORD_MODES: tuple[Mode, ...] = ("fts", "hybrid", "trigram", "regex")


@dataclass(frozen=True, slots=True)
class Store:
    connection: Connection
    rows: dict[str, UUID]


@pytest.fixture(scope="module")
def store(server: EmbeddedServer) -> Iterator[Store]:
    with module_store(server, "odd_queries_module") as url, connect(url) as connection:
        register_model(connection)
        conversation = add_conversation(connection)
        rows: dict[str, UUID] = {}
        for place, text, _ in TABLE:
            if place == "content":
                rows[text] = add_message(connection, text, conversation=conversation, age_days=90)
            elif place == "result":
                rows[text] = add_message(
                    connection, "[tool] Bash", role="tool", tool_name="Bash", tool_result=text, age_days=90
                )
            else:
                rows[text] = add_summary(connection, text)
        for number in range(40):
            add_message(connection, f"an ordinary remark about gardens, number {number}", embed=number % 4 == 0)
        refresh_lexicon(connection)
        yield Store(connection, rows)


def escaped(text: str) -> str:
    """The text as an expression of Postgres that means itself."""
    return re.sub(r"([^\w\s])", r"\\\1", text)


@pytest.mark.parametrize("mode", WORD_MODES)
def test_each_query_finds_its_text(store: Store, mode: Mode) -> None:
    missed: list[str] = []
    for _, text, queries in TABLE:
        for query in queries:
            if mode == "regex" and not any(query.lower() in part.lower() for part in (text,)):
                continue
            asked = escaped(query) if mode == "regex" else query
            hits = find(store.connection, asked, mode=mode, embedded=mode == "hybrid").hits
            if store.rows[text] not in ids(hits):
                missed.append(query)
    assert missed == []


@pytest.mark.parametrize("mode", WORD_MODES)
def test_the_text_of_a_literal_query_stands_first(store: Store, mode: Mode) -> None:
    for query in ("lib/billing/invoice_store.rb", "ledger_sync.py:88", "OPS-4711", "3.14.159", "db-07.internal"):
        asked = escaped(query) if mode == "regex" else query
        hits = find(store.connection, asked, mode=mode, embedded=mode == "hybrid").hits
        text = next(text for text in store.rows if query in text)
        assert hits[0].id == store.rows[text], query
        assert query in hits[0].snippet


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("the port to C++ begins in May", ["C++", "c++", "`C++`", "to C++?"]),
        ("half of 73% is enough for disks of C:\\ and D:\\", ["73%", "C:\\", "D:\\"]),
        ("k=v, R&D and <abbr> are no words, said @esa", ["k=v", "R&D", "<abbr>", "@esa", '"R&D"']),
        ("run it with --no-verify and .env in flush()", ["--no-verify", ".env", "flush()", "'--no-verify'"]),
        (
            "see src/ledger.py:88 for the cause",
            ["`src/ledger.py:88`", "ledger.py:88.", "\u201cledger.py:88\u201d", "ledger.py:88?"],
        ),
    ],
)
@pytest.mark.parametrize("mode", ["fts", "hybrid"])
def test_a_text_with_signs_stands_above_its_words(
    connection: Connection, mode: Mode, text: str, queries: list[str]
) -> None:
    register_model(connection)
    wanted = add_message(connection, text, age_days=300)
    for number in range(12):
        words = "C 73 D R k v abbr esa no verify env flush src ledger py 88"
        add_message(connection, f"{words} {words} port number {number}", embed=True)
    for query in queries:
        hits = find(connection, query, mode=mode, embedded=mode == "hybrid").hits
        assert hits[0].id == wanted, query
        assert hits[0].score >= 0.5 > hits[1].score


@pytest.mark.parametrize("query", SILENT)
def test_a_query_without_a_word_says_so(store: Store, query: str) -> None:
    response = find(store.connection, query)
    assert (response.hits, bool(response.reason)) == ([], True)
    response = find(store.connection, query, mode="trigram")
    found = [hit for hit in response.hits if hit.score >= 0.5]
    assert all(query.strip().lower() in f"{hit.content} {hit.tool_result}".lower() for hit in found)
    assert found or response.reason or response.hits


@pytest.mark.parametrize("mode", ["fts", "hybrid", "vector", "trigram"])
def test_no_query_is_an_error_and_none_is_answered_with_silence(store: Store, mode: Mode) -> None:
    for query in SILENT + STRANGE:
        response = find(store.connection, query, mode=mode, embedded=True, limit=5)
        assert response.hits or response.reason, query


def test_a_query_that_is_too_long_is_told_so(store: Store) -> None:
    reason = find(store.connection, "x" * 200_000).reason or ""
    assert "cut at 8,000 of its 200,000 characters" in reason
    assert "more than 2,046 bytes" in (find(store.connection, "x" * 3_000).reason or "")
    assert "first 8,000 characters" in (find(store.connection, "unheard " + "the " * 3_000).reason or "")
    assert "too common" in (find(store.connection, "of the").reason or "")


@pytest.mark.parametrize("query", ["\U0001f419\U0001f389", "\x00", "\ufffd\ufffd", "\u2026 \u2014"])
@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_signs_without_a_word_find_nothing_by_meaning(connection: Connection, query: str, mode: Mode) -> None:
    model = WordLlamaEmbedder()
    register_model(connection, name=model.name, width=model.dimensions)
    texts = ["We moved the gardens.", "\U0001f680 went up", "-> => ... \u2013"]
    for text in texts:
        add_vector(connection, "message", add_message(connection, text), model.embed([text])[0])
    embed = QueryVectors(Settings()).on(connection)
    request = SearchRequest(query, mode=mode)
    response = search(connection, request, embed_query=embed)
    assert (response.hits, response.degraded, bool(response.reason)) == ([], None, True)
    assert search(connection, replace(request, query="gardens"), embed_query=embed).hits[0].content == texts[0]


def test_a_sign_that_stands_in_a_text_is_found_by_it(connection: Connection) -> None:
    register_model(connection, name=WordLlamaEmbedder.name, width=WordLlamaEmbedder.dimensions)
    wanted = add_message(connection, "배포 일정을 다시 확인했다")
    embed = QueryVectors(Settings()).on(connection)
    assert ids(search(connection, SearchRequest("배포"), embed_query=embed).hits) == [wanted]


def test_what_is_hardly_similar_is_no_hit_of_meaning_and_words(connection: Connection) -> None:
    register_model(connection)
    towards = hash_embed("lighthouse")
    across = hash_embed("pancakes")
    across -= towards * float(across @ towards)
    across /= np.linalg.norm(across)
    near, far = (add_message(connection, text, age_days=90) for text in ("a beacon", "batter"))
    for row, share in ((near, 0.4), (far, 0.1)):
        add_vector(connection, "message", row, share * towards + np.float32(np.sqrt(1 - share**2)) * across)
    assert ids(find(connection, "lighthouse", embedded=True).hits) == [near]
    assert set(ids(find(connection, "lighthouse", embedded=True, mode="vector").hits)) == {near, far}


def test_a_word_too_long_for_any_index_is_found_by_its_text(store: Store) -> None:
    text = next(text for text in store.rows if "zeugmatic" in text)
    for query in ("z" * 2100, "z" * 150):
        assert ids(find(store.connection, query, mode="trigram").hits) == [store.rows[text]]


def test_wildcards_are_signs(connection: Connection) -> None:
    rows = {
        text: add_message(connection, text) for text in ("100% done", "100 done", "a_b", "aXb", "ends in C:\\", "a\\b")
    }
    for query, wanted in (("100%", "100% done"), ("a_b", "a_b"), ("C:\\", "ends in C:\\"), ("a\\b", "a\\b")):
        hits = find(connection, query, mode="trigram").hits
        assert hits[0].id == rows[wanted], query
        assert all(hit.score < 0.5 for hit in hits[1:]), query
    assert set(ids(find(connection, "\\", mode="trigram").hits)) == {rows["ends in C:\\"], rows["a\\b"]}
    assert find(connection, "%", mode="trigram").hits[0].id == rows["100% done"]


def test_characters_that_can_not_be_stored_are_found_as_what_became_of_them(connection: Connection) -> None:
    wanted = add_message(connection, "half a pair \ufffd here")
    for query in ("pair \x00 here", "pair \ud83d here"):
        assert ids(find(connection, query, mode="trigram").hits) == [wanted]
        assert ids(find(connection, query).hits) == [wanted]


def test_an_internal_error_is_an_error_in_every_mode(connection: Connection) -> None:
    add_message(connection, "kestrels")
    connection.execute("ALTER TABLE ros_access RENAME TO ros_access_gone")
    for mode in ("fts", "hybrid", "trigram", "regex"):
        with pytest.raises(psycopg.Error):
            find(connection, "kestrels", mode=mode)


def test_two_cjk_characters_find_all_that_a_substring_scan_finds(connection: Connection) -> None:
    rng = random.Random(7)
    signs = "天地人山水火木金土日月星云雨风雪花鸟鱼虫春夏秋冬东西南北公园"
    texts: dict[UUID, str] = {}
    for number in range(300):
        text = "".join(rng.choices(signs, k=rng.randint(4, 30)))
        if number % 3 == 0:
            texts[add_message(connection, "[tool]", role="tool", tool_name="Bash", tool_result=text)] = text
        elif number % 3 == 1:
            texts[add_message(connection, text)] = text
        else:
            texts[add_summary(connection, text)] = text
    refresh_lexicon(connection)
    assert recall(connection, texts, ["公园", *("".join(rng.choices(signs, k=2)) for _ in range(15))]) == 1.0


@pytest.mark.parametrize("mode", ["hybrid", "fts", "vector"])
@pytest.mark.parametrize("query", ["部署", "部署方案", "retry budget", "user_store.py:42"])
def test_scores_tell_the_hits_apart(connection: Connection, mode: Mode, query: str) -> None:
    register_model(connection)
    for number, text in enumerate(
        [
            "部署",
            "今天讨论了部署方案",
            "部署方案 部署方案 部署",
            "先看日志。然后部署。再看一次日志和监控",
            "the retry budget",
            "a budget of retries: retry, and retry with budget in mind, in src/user_store.py:42",
            "user_store.py:42",
            "one retry among many other words about gardens and what grows there in spring",
        ]
    ):
        add_message(connection, text, age_days=3 * number, embed=True)
    add_summary(connection, f"They spoke of {query} and of the retry budget.", embed=True)
    refresh_lexicon(connection)
    scores = [hit.score for hit in find(connection, query, mode=mode, embedded=True).hits]
    assert len(scores) > 1
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    assert len({round(score, 6) for score in scores}) > 1


#: A text, and the queries that must find it: with and without marks, and parts of what is written without spaces.
WITHOUT_SPACES_OR_MARKS: list[tuple[str, list[str]]] = [
    (
        "\u05d4\u05b7\u05e9\u05bc\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd עֲלֵיהֶם",
        ["השלום", "\u05d4\u05b7\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "עליהם"],
    ),
    ("כתבנו מכתב ארוך", ["מִכְתָּב"]),
    ("اِنْتَهَتِ الرِّحْلَةُ", ["الرحلة", "الرِّحلة", "انتهت"]),
    ("أرسل التقرير", ["ارسل", "التَّقْرِير"]),
    ("نامـــه رسید", ["نامه"]),
    ("วันนี้เราประชุมเรื่องการปรับใช้ระบบใหม่", ["ประชุม", "การปรับใช้", "ระบบ"]),
    ("ພວກເຮົາປະຊຸມມື້ນີ້", ["ປະຊຸມ"]),
    ("យើងប្រជុំថ្ងៃនេះ", ["ប្រជុំ"]),
    ("ယနေ့အစည်းအဝေးရှိသည်", ["အစည်းအဝေး"]),
]


@pytest.mark.parametrize("refreshed", [False, True])
def test_marks_that_are_seldom_written_and_spaces_that_never_are(connection: Connection, refreshed: bool) -> None:
    rows = [add_message(connection, text) for text, _ in WITHOUT_SPACES_OR_MARKS]
    for number in range(5):
        add_message(connection, f"another text, number {number}")
    if refreshed:
        refresh_lexicon(connection)
    for wanted, (text, queries) in zip(rows, WITHOUT_SPACES_OR_MARKS, strict=True):
        for query in queries:
            for mode in ("fts", "hybrid", "trigram"):
                assert ids(find(connection, query, mode=mode).hits)[:1] == [wanted], (mode, query, text)


def test_two_cjk_characters_over_real_sessions(connection: Connection, shared_data: Path) -> None:
    path = shared_data / "bench" / "memorybank" / "memory_bank_cn.json"
    texts: dict[UUID, str] = {}
    for person in json.loads(path.read_text(encoding="utf-8")).values():
        conversation = add_conversation(connection)
        for turns in person["history"].values():
            for turn in turns:
                for role, text in (("user", turn["query"]), ("assistant", turn["response"])):
                    texts[add_message(connection, text, conversation=conversation, role=role)] = text
    refresh_lexicon(connection)
    pairs = {
        text[place : place + 2]
        for text in texts.values()
        for place in range(len(text) - 1)
        if re.fullmatch("[\u4e00-\u9fff]{2}", text[place : place + 2])
    }
    assert recall(connection, texts, ["公园", *random.Random(11).sample(sorted(pairs), 40)]) == 1.0


def recall(connection: Connection, texts: dict[UUID, str], queries: list[str]) -> float:
    """The share of the rows that hold a query, of at most as many as an answer has, that words and texts find."""
    found = wanted = 0
    for query in queries:
        holders = {key for key, text in texts.items() if query in text}
        for mode in ("fts", "trigram"):
            hits = find(connection, query, mode=mode, limit=50).hits
            wanted += min(50, len(holders))
            found += len(holders & set(ids(hits)))
    return found / wanted


@pytest.mark.parametrize("is_behind", [False, True], ids=["indexed", "far behind"])
def test_words_that_stand_nowhere_do_not_take_the_places_of_others(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, is_behind: bool
) -> None:
    conversation = add_conversation(connection)
    for number in range(30):
        add_message(connection, f"the kettle boils for the {number}th time", conversation=conversation)
    wanted = add_message(connection, "we dropped the samovar for the kettle", conversation=conversation)
    # A word with a digit that stands in one row of a piece is in the index, and not in the lexicon.
    hashed = add_message(connection, "the boiler zz83f1c7 leaks", conversation=conversation)
    refresh_lexicon(connection)
    new = add_message(connection, "a brazier is what we want", conversation=conversation)
    if is_behind:
        monkeypatch.setattr(index_state, "MOST_LIVE", 0)
    nowhere = " ".join(f"aa{first}{second}q" for first in "bcdfghjkl" for second in "bcdfghjklmnprstv")
    for query, expected in (
        (f"samovar kettle {nowhere}", wanted),
        (f"brazier {nowhere}", new),
        (f"zz83f1c7 {nowhere}", hashed),
    ):
        answer = find(connection, query, limit=5)
        assert ids(answer.hits)[:1] == [expected], query
        assert answer.unmatched is None
