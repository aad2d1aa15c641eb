-- The stale summaries of a level that nothing keeps from being made again, in the order in which that is done. None when
-- somebody else has announced another model or version meanwhile: what is stale is then not ours to say. Without
-- `outdated` what only an older version or another model made stays; a changed text is pending whatever made the row.
SELECT t.id, t.conversation_id, t.day, s.input_hash, s.text_hash::text AS text_hash, t.reason,
       ros_is_trusted(s) AS trusted
FROM ros_stale_summaries AS t
JOIN ros_refinement_versions AS v ON v.stage = t.stage AND v.model = %(model)s AND v.version = %(version)s
JOIN ros_summaries AS s ON s.id = t.id
WHERE t.stage = %(stage)s
  AND (%(days)s::date[] IS NULL OR t.day = ANY(%(days)s::date[]))
  AND NOT t.waits
  AND (%(outdated)s OR t.reason IN ('source', 'requested')
       OR t.id IN (SELECT p.id FROM ros_pending_changed_summaries AS p WHERE p.stage = %(stage)s))
ORDER BY t.day, t.conversation_id, s.earliest_at, s.seq
