-- Conversations with messages in no leaf, and these messages, by what becomes of them.
SELECT CASE WHEN w.due IS NOT NULL THEN 'eligible' WHEN w.waiting >= r.leaf_stale_min THEN 'active_tail'
            ELSE 'below_floor'
       END AS state,
       count(*) AS conversations, sum(w.waiting)::bigint AS messages
FROM ros_unsummarised AS w CROSS JOIN ros_batch_rules() AS r
GROUP BY state
