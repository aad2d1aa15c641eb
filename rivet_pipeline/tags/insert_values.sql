-- Values that nobody has seen yet come into the vocabulary as suggested, so that it is reviewed itself.
INSERT INTO ros_tag_taxonomy (tag_key, tag_value, display, status, source, proposed_by)
SELECT DISTINCT ON (p.key, p.value) p.key, p.value, p.display, 'suggested', %(source)s, %(model)s
FROM unnest(%(keys)s::text[], %(values)s::text[], %(displays)s::text[]) AS p (key, value, display)
WHERE NOT EXISTS (
    SELECT 1 FROM ros_tags AS t WHERE t.tag_key = p.key AND t.tag_value = p.value AND t.status = 'accepted')
ORDER BY p.key, p.value
ON CONFLICT (tag_key, tag_value) DO NOTHING
