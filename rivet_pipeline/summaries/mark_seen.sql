-- Marks the conversations in which time alone can make no leaf due: noise, or fewer waiting messages than the stale
-- rule asks for, and no failure on record. One statement, one snapshot: the revision it stores is the one it looked at.
INSERT INTO ros_stage_marks (stage, conversation_id, revision)
SELECT u.stage, u.conversation_id, u.revision
FROM ros_unseen_conversations AS u
CROSS JOIN ros_batch_rules() AS r
WHERE u.stage = 'leaf_summaries'
  AND (%(days)s::date[] IS NULL OR u.day = ANY(%(days)s::date[]))
  AND NOT EXISTS (
      SELECT 1 FROM ros_failures AS f WHERE f.stage = 'leaf_summaries' AND f.item = u.conversation_id::text)
  AND (u.noise OR r.leaf_stale_min > (
      SELECT count(*) FROM (
          SELECT 1 FROM ros_messages AS m
          WHERE m.conversation_id = u.conversation_id
            AND ros_is_refined(m.content, m.tool_name, m.tool_result, m.metadata)
            AND NOT EXISTS (SELECT 1 FROM ros_summary_sources AS s WHERE s.message_id = m.id)
          LIMIT r.leaf_stale_min) AS waiting))
-- Always in the same order, so that two workers can not deadlock on each other's marks.
ORDER BY u.conversation_id
ON CONFLICT (stage, conversation_id) DO UPDATE SET revision = excluded.revision, marked_at = now()
WHERE ros_stage_marks.revision < excluded.revision
