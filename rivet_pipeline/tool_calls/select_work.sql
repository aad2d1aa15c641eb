-- Numbers what is pending of some days (NULL: all) and cuts it into pages, so that a page holds at most 500 calls and
-- about four megabytes of arguments.
INSERT INTO ros_tool_text_work (page, n, id, day)
SELECT (sum(8000 + coalesce(pg_column_size(m.tool_args), 0)) OVER place / 4000000)::integer,
       row_number() OVER place, p.id, p.day
FROM ros_pending_tool_call_text AS p
JOIN ros_messages AS m ON m.id = p.id
LEFT JOIN ros_failures AS f ON f.stage = 'tool_call_text' AND f.item = p.id::text
WHERE %(days)s::date[] IS NULL OR p.day = ANY(%(days)s::date[])
-- Those that have failed before come last, so that they do not use up a pass in front of the others.
WINDOW place AS (ORDER BY coalesce(f.attempts, 0), p.day, p.seq)
