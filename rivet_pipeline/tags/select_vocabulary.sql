-- What a tagger is offered: accepted values, then accepted tags in use; neither aliases nor what was rejected.
WITH used AS (
    SELECT tag_key, tag_value, count(DISTINCT conversation_id) AS uses FROM ros_tags WHERE status = 'accepted'
    GROUP BY tag_key, tag_value
)
SELECT tag_key, tag_value
FROM (
    SELECT tag_key, tag_value, status, alias_of FROM ros_tag_taxonomy
) AS v
FULL JOIN used AS u USING (tag_key, tag_value)
WHERE v.alias_of IS NULL AND (v.status = 'accepted' OR (v.status IS NULL AND u.uses > 0))
ORDER BY v.status IS NULL, coalesce(u.uses, 0) DESC, tag_key, tag_value
LIMIT %(limit)s
