-- The failure ledger by stage and cause; `held_stages` and `held_items` name what `select_held.sql` finds.
WITH judged AS (
    SELECT f.*, f.item = %(service)s AS is_service, f.next_attempt_at IS NOT NULL AND h.item IS NOT NULL AS held
    FROM ros_failures AS f
    LEFT JOIN unnest(%(held_stages)s::text[], %(held_items)s::text[]) AS h (stage, item)
      ON h.stage = f.stage AND h.item = f.item
)
SELECT stage, is_service, cause, count(*) AS items,
       count(*) FILTER (WHERE next_attempt_at IS NULL) AS given_up,
       count(*) FILTER (WHERE next_attempt_at <= now()) AS due, count(*) FILTER (WHERE held) AS held,
       min(next_attempt_at) FILTER (WHERE NOT held) AS next_attempt_at, min(first_failed_at) AS oldest_at,
       (array_agg(left(error, 500) ORDER BY last_failed_at DESC))[1] AS error
FROM judged
GROUP BY stage, is_service, cause ORDER BY stage, cause
