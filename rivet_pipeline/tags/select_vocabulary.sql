-- What a tagger is offered: accepted values, then accepted tags in use; neither aliases nor what was rejected.
-- A value that a tagger suggested first counts once a person has accepted a tag of it.
WITH used AS (
    SELECT tag_key, tag_value, count(DISTINCT conversation_id) AS uses, bool_or(decided_by IS NOT NULL) AS reviewed
    FROM ros_tags WHERE status = 'accepted'
    GROUP BY tag_key, tag_value
)
SELECT tag_key, tag_value
FROM (
    SELECT tag_key, tag_value, status, alias_of FROM ros_tag_taxonomy
) AS v
FULL JOIN used AS u USING (tag_key, tag_value)
WHERE v.alias_of IS NULL
  AND (v.status = 'accepted' OR (v.status IS NULL AND u.uses > 0) OR (v.status = 'suggested' AND u.reviewed))
ORDER BY v.status IS DISTINCT FROM 'accepted', coalesce(u.uses, 0) DESC, tag_key, tag_value
LIMIT %(limit)s
