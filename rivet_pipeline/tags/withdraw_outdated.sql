-- Before a leaf is tagged anew: takes back what a tagger suggested of it before, does not suggest now, and nobody has
-- decided about; then what the conversation was suggested with it and no leaf stands for any more.
WITH withdrawn AS (
    DELETE FROM ros_tags AS t
    WHERE t.entity_kind = 'summary' AND t.entity_id = %(summary)s AND t.status = 'suggested' AND t.decided_by IS NULL
      AND t.source IN ('model', 'keyphrases')
      AND NOT EXISTS (
          SELECT 1 FROM unnest(%(keys)s::text[], %(values)s::text[]) AS p (key, value)
          WHERE p.key = t.tag_key AND ros_tag_target(p.key, p.value) = t.tag_value)
    RETURNING t.tag_key, t.tag_value
)
DELETE FROM ros_tags AS t USING withdrawn AS w
WHERE t.entity_kind = 'conversation' AND t.entity_id = %(conversation)s AND t.tag_key = w.tag_key
  AND t.tag_value = w.tag_value AND t.status = 'suggested' AND t.decided_by IS NULL
  AND t.source IN ('model', 'keyphrases')
  AND NOT EXISTS (
      SELECT 1 FROM ros_tags AS o
      WHERE o.conversation_id = %(conversation)s AND o.entity_kind = 'summary' AND o.entity_id <> %(summary)s
        AND o.tag_key = w.tag_key AND o.tag_value = w.tag_value)
