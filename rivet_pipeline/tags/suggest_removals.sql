-- Notes that a tagger would have tags taken off. What a person has given or decided about is theirs, and what a person has
-- refused to take off is not asked about again.
UPDATE ros_tags AS t SET removal = 'suggested', removal_reason = p.reason
FROM unnest(%(keys)s::text[], %(values)s::text[], %(reasons)s::text[]) AS p (key, value, reason)
WHERE t.entity_id IN (%(conversation)s, %(summary)s) AND t.tag_key = p.key AND t.tag_value = ros_tag_target(p.key, p.value)
  AND t.status = 'accepted' AND t.removal IS NULL AND t.decided_by IS NULL
