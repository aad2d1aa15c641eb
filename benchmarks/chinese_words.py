"""Chinese words of two characters: recall of our search beside a scan for the text and Postgres' own text search.

Reads the Chinese conversations of MemoryBank (`memory_bank_cn.json`), stores and refines them as the product does, and
asks for everyday words (`WORDS`, those that stand in the file) and for pairs of neighbouring characters drawn from it
(seeded). A message that holds the text, by a scan of all, is what should be found. Every way may give as many rows as
the longest list has (50), so of a word that more messages hold 50 are wanted. Postgres' way is a `to_tsvector` of each
message by the configuration that is named, in a database whose character type is C.UTF-8. Prints a table; writes
nothing into the repository.

    python -m benchmarks.chinese_words --file memory_bank_cn.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from uuid import UUID

from psycopg.conninfo import make_conninfo

from benchmarks.temporary import temporary_server
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.db.scratch import scratch_database
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.models.protocols import Embedder
from rivet_pipeline.retrieval.evaluation_sets import Conversation, QuestionSet, Turn
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.search import MAX_LIMIT, EmbedQuery, search
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.settings import Settings
from rivet_pipeline.trial import fill

WORDS = (
    "公园 朋友 工作 电影 音乐 学习 生活 健康 旅行 家人 父母 老师 学校 考试 压力 心情 今天 昨天 周末 时间 "
    "问题 建议 方法 计划 兴趣 爱好 运动 跑步 游泳 篮球 吃饭 做饭 蛋糕 咖啡 生日 礼物 手机 电脑 游戏 小说 "
    "作家 文章 历史 文化 城市 北京 上海 天气 医生 医院 睡眠 感冒 公司 同事 项目 经验 成功 努力 自信 性格"
)
PAIRS = 200
SEED = 11
SHOWN = 10

#: The first rows for a word, best first where the way has an order.
Way = Callable[[str], Sequence[UUID]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One way: the share found of the rows wanted, the words without any, and the share of the first ten places.

    Of the first ten places of a list, or as many as messages hold the word, those where one of them stands.
    """

    recall: float
    empty: int
    first: float


def read_memorybank(path: Path) -> QuestionSet:
    """Each day of each person as a conversation of their own, in order; the file asks nothing."""
    conversations = []
    for number, person in enumerate(json.loads(path.read_text(encoding="utf-8")).values()):
        for day, said in person["history"].items():
            began = datetime.fromisoformat(day).replace(tzinfo=UTC)
            turns: list[Turn] = []
            for one in said:
                for role, text in (("user", one["query"]), ("assistant", one["response"])):
                    at = began + timedelta(seconds=len(turns))
                    turns.append(Turn(str(len(turns)), "user" if role == "user" else "assistant", text, at))
            conversations.append(Conversation(f"memorybank:{number}:{day}", f"person-{number}", tuple(turns)))
    return QuestionSet("memorybank", tuple(conversations), ())


def draw_pairs(texts: Collection[str], count: int) -> list[str]:
    """As many different pairs of neighbouring Chinese characters, each as likely as another."""
    pairs = {pair for text in texts for pair in re.findall("(?=([\u4e00-\u9fff]{2}))", text)}
    return random.Random(SEED).sample(sorted(pairs), min(count, len(pairs)))


@contextmanager
def other_store(url: str, texts: dict[UUID, str]) -> Iterator[Connection]:
    """The same messages in a database whose character type knows letters beyond ASCII.

    Where it is C, as in our embedded store, Postgres' parser leaves out every Chinese character: no fair baseline.
    """
    name = "chinese_words_baseline"
    with connect(url) as control:
        control.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'")
        try:
            with connect(make_conninfo(url, dbname=name)) as connection:
                connection.execute("CREATE TABLE ros_messages (id uuid, content text)")
                with connection.cursor() as cursor:
                    cursor.executemany("INSERT INTO ros_messages VALUES (%s, %s)", list(texts.items()))
                yield connection
        finally:
            control.execute(f"DROP DATABASE {name}")


def ways(connection: Connection, other: Connection, embed: EmbedQuery | None) -> dict[str, Way]:
    """What is compared, by name: our search of the one store, Postgres' of the other."""

    def ours(mode: Literal["fts", "hybrid"]) -> Way:
        def ask(word: str) -> Sequence[UUID]:
            request = SearchRequest(word, mode=mode, scope="messages", limit=MAX_LIMIT)
            return [hit.id for hit in search(connection, request, embed_query=embed).hits]

        return ask

    def postgres(configuration: str) -> Way:
        def ask(word: str) -> Sequence[UUID]:
            rows = other.execute(
                """SELECT id FROM ros_messages, plainto_tsquery(%(by)s::regconfig, %(word)s) AS query
                   WHERE to_tsvector(%(by)s::regconfig, content) @@ query
                   ORDER BY ts_rank(to_tsvector(%(by)s::regconfig, content), query) DESC LIMIT %(limit)s""",
                {"by": configuration, "word": word, "limit": MAX_LIMIT},
            ).fetchall()
            return [row["id"] for row in rows]

        return ask

    return {
        "ours, fts": ours("fts"),
        "ours, hybrid": ours("hybrid"),
        "to_tsvector('simple')": postgres("simple"),
        "to_tsvector('english')": postgres("english"),
    }


def measure(texts: dict[UUID, str], words: Sequence[str], ask: Way) -> Measured:
    """One way over all words; each must stand in a text."""
    wanted = found = empty = first = right = 0
    for word in words:
        holders = {key for key, text in texts.items() if word in text}
        given = ask(word)
        hits = sum(key in holders for key in given)
        wanted += min(MAX_LIMIT, len(holders))
        found += hits
        empty += not hits
        places = min(SHOWN, len(holders))
        first += places
        right += sum(key in holders for key in given[:places])
    return Measured(found / wanted, empty, right / first)


def compare(url: str, embed_by: Embedder, words: Sequence[str]) -> dict[str, Measured]:
    """Every way over those of the words that stand in a filled store."""
    with connect(url) as connection:
        rows = connection.execute("SELECT id, content FROM ros_messages").fetchall()
        texts = {row["id"]: row["content"] for row in rows}
        asked = [word for word in words if any(word in text for text in texts.values())]
        embed = QueryVectors(Settings(), embed_by).on(connection)
        with other_store(url, texts) as other:
            return {name: measure(texts, asked, ask) for name, ask in ways(connection, other, embed).items()}


def run(url: str, sample: QuestionSet) -> None:
    """Stores the conversations in a scratch database and prints both tables."""
    embedder = WordLlamaEmbedder()
    texts = [turn.content for one in sample.conversations for turn in one.turns]
    print(f"{len(texts)} messages, {len(''.join(texts))} characters")
    with scratch_database(url) as scratch, open_pool(scratch, max_size=4) as pool:
        fill(pool, Settings(), sample, embedder=embedder)
        everyday = [word for word in WORDS.split() if any(word in text for text in texts)]
        for name, words in (("everyday words", everyday), ("pairs drawn", draw_pairs(texts, PAIRS))):
            print(f"\n{f'{len(words)} {name}':<26}{'recall':>8}{'nothing':>9}{'first ten':>11}")
            for way, one in compare(scratch, embedder, words).items():
                print(f"{way:<26}{one.recall:>8.3f}{one.empty:>9}{one.first:>11.3f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="default: bench/memorybank/memory_bank_cn.json of RIVET_SHARED_DATA")
    path = parser.parse_args().file
    if path is None:
        shared = os.environ.get("RIVET_SHARED_DATA")
        if shared is None:
            parser.error("name a file with --file, or set RIVET_SHARED_DATA")
        path = Path(shared) / "bench" / "memorybank" / "memory_bank_cn.json"
    sample = read_memorybank(path)
    with temporary_server() as server:
        run(server.url("postgres"), sample)


if __name__ == "__main__":
    main()
