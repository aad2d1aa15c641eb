-- Failed items that stand in no pending view, whatever rests: a summary below which no text has changed (new batches fail by
-- their conversation's id), and a leaf that was mined as it is now.
WITH failures AS MATERIALIZED (
    SELECT stage, item, CASE WHEN item ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN item::uuid END AS id
    FROM ros_failures
)
SELECT f.stage, f.item
FROM failures AS f JOIN ros_summaries AS s ON s.id = f.id AND f.stage = s.kind || '_summaries'
WHERE NOT EXISTS (SELECT 1 FROM ros_summaries_over_changes AS o WHERE o.id = s.id AND NOT o.current)
UNION ALL
SELECT f.stage, f.item
FROM failures AS f
JOIN ros_summaries AS s ON s.id = f.id
JOIN ros_wiki_extractions AS x ON x.leaf_id = s.id AND x.text_hash = s.text_hash
WHERE f.stage = 'wiki_patches'
