"""Questions about the wiki that should all be answered with nothing: what its asset checks ask. Read only."""

from __future__ import annotations

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.db.quality import Finding
from rivet_pipeline.wiki.pages import HISTORY_CAP, SECTION_CAPS, build_page, page_to_json
from rivet_pipeline.wiki.store import applied_patches

#: Pages that are compared with their patches in one go.
_COMPARED = 100

#: A stored page is never larger than this, in bytes: its sentences at their longest in four-byte letters, with ids.
LARGEST_PAGE = 1_000_000


def stale_extractions(connection: Connection) -> Finding:
    """Leaves that an older version has mined."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM ros_stale_wiki_patches) AS stale, "
        "(SELECT count(*) FROM ros_wiki_extractions) AS n"
    ).fetchone()
    examples = connection.execute(
        "SELECT day, count(*) AS leaves FROM ros_stale_wiki_patches GROUP BY day ORDER BY day LIMIT 10"
    ).fetchall()
    assert row is not None
    return Finding(row["stale"], row["n"], examples)


def uncited_sentences(connection: Connection) -> Finding:
    """Sentences of live pages that no citation of an applied patch's leaf leads away from."""
    row = connection.execute(
        f"SELECT count(*) FILTER (WHERE NOT cited) AS at_fault, count(*) AS examined FROM ({_SENTENCES}) AS s"  # noqa: S608
    ).fetchone()
    examples = connection.execute(
        f"SELECT slug, left(text, 120) AS text FROM ({_SENTENCES}) AS s WHERE NOT cited LIMIT 10"  # noqa: S608
    ).fetchall()
    assert row is not None
    return Finding(row["at_fault"], row["examined"], examples)


_SENTENCES = """
SELECT t.slug, b.value ->> 'text' AS text, EXISTS (
           SELECT 1 FROM ros_wiki_citations AS c JOIN ros_wiki_patches AS p ON p.leaf_id = c.leaf_id
           WHERE c.topic_id = t.id AND c.claim_key = (b.value ->> 'key')::uuid AND p.status = 'applied') AS cited
FROM ros_wiki_topics AS t
CROSS JOIN LATERAL (
    SELECT e.value FROM jsonb_each(t.page -> 'sections') AS n CROSS JOIN LATERAL jsonb_array_elements(n.value) AS e
    UNION ALL SELECT h.value FROM jsonb_array_elements(t.page -> 'history') AS h
) AS b
WHERE t.status = 'live'
"""


def unlike_their_patches(connection: Connection) -> Finding:
    """Pages, of those that changed last, that are not what their applied patches make."""
    rows = connection.execute(
        "SELECT id, slug, title, page FROM ros_wiki_topics WHERE status <> 'merged' AND page <> '{}' "
        "ORDER BY updated_at DESC, id LIMIT %s",
        [_COMPARED],
    ).fetchall()
    wrong = [
        {"page": row["slug"]}
        for row in rows
        if page_to_json(build_page(row["title"], applied_patches(connection, row["id"]))) != row["page"]
    ]
    return Finding(len(wrong), len(rows), wrong[:10])


def oversized_pages(connection: Connection) -> Finding:
    """Pages with more sentences, or more bytes, than the caps allow."""
    most = sum(SECTION_CAPS.values())
    rows = connection.execute(
        """
        SELECT slug, bullets, jsonb_array_length(coalesce(page -> 'history', '[]')) AS history,
               octet_length(page::text) AS bytes
        FROM ros_wiki_topics
        """
    ).fetchall()
    wrong = [
        row for row in rows if row["bullets"] > most or row["history"] > HISTORY_CAP or row["bytes"] > LARGEST_PAGE
    ]
    return Finding(len(wrong), len(rows), wrong[:10])
