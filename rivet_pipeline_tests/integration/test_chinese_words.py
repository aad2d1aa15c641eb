"""The benchmark of Chinese words: what it counts, over a few conversations written here."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.chinese_words import compare, draw_pairs, read_memorybank
from rivet_pipeline.db.pool import open_pool
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.settings import Settings
from rivet_pipeline.trial import fill

BANK = {
    "小明": {
        "history": {
            "2023-04-27": [
                {"query": "我昨天在公园跑步了", "response": "在公园跑步对健康很好"},
                {"query": "公园", "response": "你想说什么呢?"},
            ],
            "2023-04-28": [{"query": "老师说考试很难", "response": "不要有太大的压力"}],
        }
    }
}


def test_words_within_sentences_are_ours_and_not_of_postgres(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "bank.json"
    path.write_text(json.dumps(BANK), encoding="utf-8")
    sample = read_memorybank(path)
    assert [len(one.turns) for one in sample.conversations] == [4, 2]
    embedder = WordLlamaEmbedder()
    with open_pool(database_url, max_size=2) as pool:
        fill(pool, Settings(), sample, embedder=embedder)
    # The last one stands nowhere and is not asked.
    found = compare(database_url, embedder, ["公园", "压力", "北京"])
    assert (found["ours, fts"].recall, found["ours, hybrid"].recall) == (1.0, 1.0)
    assert found["ours, fts"].first == 1.0
    # Only the message that is nothing but the word.
    simple = found["to_tsvector('simple')"]
    assert (simple.recall, simple.empty, simple.first) == (0.25, 1, 0.25)


def test_pairs_overlap_and_stay_within_chinese() -> None:
    assert sorted(draw_pairs(["公园里, ab 跑x步"], 10)) == ["公园", "园里"]
