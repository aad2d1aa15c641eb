-- The vocabulary with its uses: the taxonomy, and accepted tags whose value does not stand there.
WITH used AS (
    SELECT tag_key, tag_value, max(display) AS display, count(DISTINCT conversation_id) AS uses,
           min(created_at) AS created_at, bool_or(source = 'rule') AS by_rule
    FROM ros_tags WHERE status = 'accepted' AND (%(key)s::text IS NULL OR tag_key = %(key)s::text)
    GROUP BY tag_key, tag_value
)
SELECT coalesce(v.tag_key, u.tag_key) AS key, coalesce(v.tag_value, u.tag_value) AS value,
       coalesce(nullif(v.display, ''), u.display, '') AS display, coalesce(v.status, 'accepted') AS status, v.alias_of,
       coalesce(v.description, '') AS description,
       coalesce(v.source, CASE WHEN u.by_rule THEN 'rule' ELSE 'person' END) AS source,
       coalesce(v.proposed_by, 'in use') AS proposed_by, v.decided_by, v.decided_at,
       coalesce(v.created_at, u.created_at) AS created_at, coalesce(v.revision, 0) AS revision, coalesce(u.uses, 0) AS uses
FROM (SELECT * FROM ros_tag_taxonomy WHERE %(key)s::text IS NULL OR tag_key = %(key)s::text) AS v
FULL JOIN used AS u ON u.tag_key = v.tag_key AND u.tag_value = v.tag_value
WHERE %(statuses)s::text[] IS NULL OR coalesce(v.status, 'accepted') = ANY(%(statuses)s::text[])
ORDER BY uses DESC, key, value
LIMIT %(limit)s
