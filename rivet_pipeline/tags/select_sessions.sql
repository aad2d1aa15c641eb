-- The conversations of session keys. A key without a colon that no conversation has is looked for behind the names of the
-- harnesses, too.
WITH harnesses AS MATERIALIZED (
    SELECT DISTINCT split_part(session_key, ':', 1) AS harness FROM ros_conversations
    WHERE EXISTS (SELECT 1 FROM unnest(%(keys)s::text[]) AS a (asked) WHERE strpos(asked, ':') = 0)
)
SELECT a.asked, c.id
FROM unnest(%(keys)s::text[]) AS a (asked)
CROSS JOIN LATERAL (
    SELECT id FROM ros_conversations WHERE session_hash = md5(a.asked)::uuid
    UNION ALL
    SELECT c.id FROM harnesses AS h JOIN ros_conversations AS c ON c.session_hash = md5(h.harness || ':' || a.asked)::uuid
    WHERE strpos(a.asked, ':') = 0
      AND NOT EXISTS (SELECT 1 FROM ros_conversations WHERE session_hash = md5(a.asked)::uuid)
) AS c
ORDER BY a.asked, c.id
