-- Suggests tags on a leaf and on its conversation, as what their values mean now. What stands there already, decided or
-- not, stays; what the session has been given or refused by its reviewers (or by the rule) is not asked once more on a
-- leaf of it, and a value that was taken out of the vocabulary is not proposed at all.
WITH proposals AS (
    SELECT DISTINCT ON (p.key, t.value) p.key, t.value, p.confidence, p.reason,
           CASE WHEN t.value = p.value THEN p.display ELSE '' END AS display
    FROM unnest(%(keys)s::text[], %(values)s::text[], %(displays)s::text[], %(confidences)s::real[], %(reasons)s::text[])
         WITH ORDINALITY AS p (key, value, display, confidence, reason, place)
    CROSS JOIN LATERAL ros_tag_target(p.key, p.value) AS t (value)
    WHERE NOT EXISTS (
        SELECT 1 FROM ros_tag_taxonomy AS v
        WHERE v.tag_key = p.key AND v.tag_value = t.value AND v.status = 'rejected')
      AND NOT EXISTS (
        SELECT 1 FROM ros_tags AS s
        WHERE s.entity_kind = 'conversation' AND s.entity_id = %(conversation)s AND s.tag_key = p.key
          AND s.tag_value = t.value AND s.status <> 'suggested')
    ORDER BY p.key, t.value, p.place
)
INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, display, status, source, confidence,
                      reason, proposed_by, pipeline_version)
SELECT e.kind, e.id, %(conversation)s, p.key, p.value, p.display, 'suggested', %(source)s, p.confidence, p.reason, %(model)s,
       %(version)s
FROM proposals AS p
CROSS JOIN (VALUES ('conversation', %(conversation)s::uuid), ('summary', %(summary)s::uuid)) AS e (kind, id)
-- Always in the same order, so that two workers can not wait for each other for ever.
ORDER BY e.kind, p.key, p.value
ON CONFLICT (entity_kind, entity_id, tag_key, tag_value) DO NOTHING
