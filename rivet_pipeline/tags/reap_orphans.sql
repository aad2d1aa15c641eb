-- Deletes what stands on conversations and summaries that are gone.
WITH tags AS (
    DELETE FROM ros_tags AS t
    WHERE (t.entity_kind = 'conversation' AND NOT EXISTS (SELECT 1 FROM ros_conversations AS c WHERE c.id = t.entity_id))
       OR (t.entity_kind = 'summary' AND NOT EXISTS (SELECT 1 FROM ros_summaries AS s WHERE s.id = t.entity_id))
    RETURNING 1
), extractions AS (
    DELETE FROM ros_tag_extractions AS x WHERE NOT EXISTS (SELECT 1 FROM ros_summaries AS s WHERE s.id = x.summary_id)
    RETURNING 1
), marks AS (
    DELETE FROM ros_tag_rule_marks AS k
    WHERE NOT EXISTS (SELECT 1 FROM ros_conversations AS c WHERE c.id = k.conversation_id)
    RETURNING 1
)
SELECT (SELECT count(*) FROM tags) AS tags, (SELECT count(*) FROM extractions) AS extractions,
       (SELECT count(*) FROM marks) AS marks
