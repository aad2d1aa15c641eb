-- Marks the conversations in which no call lacks a text. One statement, one snapshot: the revision it stores is the one
-- it looked at.
INSERT INTO ros_stage_marks (stage, conversation_id, revision)
SELECT u.stage, u.conversation_id, u.revision
FROM ros_unseen_conversations AS u
WHERE u.stage = 'tool_call_text'
  AND (%(days)s::date[] IS NULL OR u.day = ANY(%(days)s::date[]))
  AND (u.noise OR NOT EXISTS (
      SELECT 1 FROM ros_messages AS m
      WHERE m.conversation_id = u.conversation_id AND ros_is_untold(m.content, m.tool_name, m.metadata)))
-- Always in the same order, so that two workers can not deadlock on each other's marks.
ORDER BY u.conversation_id
ON CONFLICT (stage, conversation_id) DO UPDATE SET revision = excluded.revision, marked_at = now()
WHERE ros_stage_marks.revision < excluded.revision
