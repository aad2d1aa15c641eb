-- The failure ledger by stage and cause. `held`: items that stand in no pending view, whatever rests: a summary below which
-- no text has changed (new batches fail by their conversation's id), and a leaf that was mined as it is now.
WITH failures AS MATERIALIZED (
    SELECT *, CASE WHEN item ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN item::uuid END AS id
    FROM ros_failures
), held AS MATERIALIZED (
    SELECT f.stage, f.item
    FROM failures AS f JOIN ros_summaries AS s ON s.id = f.id AND f.stage = s.kind || '_summaries'
    WHERE NOT EXISTS (SELECT 1 FROM ros_summaries_over_changes AS o WHERE o.id = s.id AND NOT o.current)
    UNION ALL
    SELECT f.stage, f.item
    FROM failures AS f
    JOIN ros_summaries AS s ON s.id = f.id
    JOIN ros_wiki_extractions AS x ON x.leaf_id = s.id AND x.text_hash = s.text_hash
    WHERE f.stage = 'wiki_patches'
), judged AS (
    SELECT f.*, f.item = %(service)s AS is_service, f.next_attempt_at IS NOT NULL AND h.item IS NOT NULL AS held
    FROM failures AS f LEFT JOIN held AS h ON h.stage = f.stage AND h.item = f.item
)
SELECT stage, is_service, cause, count(*) AS items,
       count(*) FILTER (WHERE next_attempt_at IS NULL) AS given_up,
       count(*) FILTER (WHERE next_attempt_at <= now()) AS due, count(*) FILTER (WHERE held) AS held,
       min(next_attempt_at) FILTER (WHERE NOT held) AS next_attempt_at, min(first_failed_at) AS oldest_at,
       (array_agg(left(error, 500) ORDER BY last_failed_at DESC))[1] AS error
FROM judged
GROUP BY stage, is_service, cause ORDER BY stage, cause
