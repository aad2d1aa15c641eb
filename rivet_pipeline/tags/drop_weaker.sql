-- Of two tags that a merge would make one, deletes the weaker; when both are alike the one that is merged gives way.
WITH ranked AS (
    SELECT id, entity_kind, entity_id, tag_value,
           CASE WHEN status = 'accepted' AND decided_by IS NOT NULL THEN 4
                WHEN status = 'accepted' THEN 3
                WHEN status = 'rejected' THEN 2
                ELSE 1 END AS strength
    FROM ros_tags WHERE tag_key = %(key)s AND tag_value IN (%(from)s, %(into)s)
), pairs AS (
    SELECT CASE WHEN f.strength > t.strength THEN t.id ELSE f.id END AS weaker
    FROM ranked AS f
    JOIN ranked AS t ON t.entity_kind = f.entity_kind AND t.entity_id = f.entity_id AND t.tag_value = %(into)s
    WHERE f.tag_value = %(from)s
)
DELETE FROM ros_tags WHERE id IN (SELECT weaker FROM pairs)
