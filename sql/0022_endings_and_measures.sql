-- What the end of a session makes due, and how good search was found to be over time.

CREATE OR REPLACE VIEW ros_unseen_conversations AS
SELECT stages.stage, c.id AS conversation_id, c.day, c.revision, c.updated_at,
       ros_is_noise(c.session_key, c.settings) AS noise, c.active
FROM ros_conversations AS c
CROSS JOIN (VALUES ('messages'), ('tool_call_text'), ('message_embeddings'), ('leaf_summaries')) AS stages (stage)
LEFT JOIN ros_stage_marks AS k ON k.stage = stages.stage AND k.conversation_id = c.id
WHERE k.revision IS NULL OR k.revision < c.revision;

-- A batch is full with ten messages, or with five to which no more will come: whoever captures has said that the session
-- is over. It need not rest first, and a sensor sees it.
CREATE OR REPLACE VIEW ros_unsummarised AS
SELECT u.conversation_id, u.day, u.revision, u.updated_at, w.waiting,
       CASE WHEN w.waiting >= r.leaf_batch OR (w.waiting >= r.leaf_min AND NOT u.active) THEN 'full'
            WHEN w.waiting >= r.leaf_min AND u.updated_at <= now() - r.leaf_idle THEN 'idle'
            WHEN w.waiting >= r.leaf_stale_min AND u.updated_at <= now() - r.leaf_stale THEN 'stale'
       END AS due
FROM ros_unseen_conversations AS u
CROSS JOIN ros_batch_rules() AS r
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting FROM ros_messages AS m
    WHERE m.conversation_id = u.conversation_id
      AND ros_is_refined(m.content, m.tool_name, m.tool_result, m.metadata)
      AND NOT EXISTS (SELECT 1 FROM ros_summary_sources AS s WHERE s.message_id = m.id)
) AS w
WHERE u.stage = 'leaf_summaries' AND NOT u.noise AND w.waiting > 0;

CREATE OR REPLACE VIEW ros_pending_parent_summaries AS
SELECT o.conversation_id, c.day, o.parent_kind, o.waiting,
       CASE WHEN o.waiting >= o.batch OR NOT c.active THEN 'full' ELSE 'idle' END AS due
FROM ros_waiting_children AS o
JOIN ros_conversations AS c ON c.id = o.conversation_id
CROSS JOIN ros_batch_rules() AS r
WHERE (o.waiting >= o.batch
       OR ((c.updated_at <= now() - r.leaf_idle OR NOT c.active)
           AND NOT EXISTS (SELECT 1 FROM ros_pending_leaf_summaries AS p WHERE p.conversation_id = o.conversation_id)
           AND NOT EXISTS (
               SELECT 1 FROM ros_waiting_children AS w
               WHERE o.parent_kind = 'root' AND w.conversation_id = o.conversation_id AND w.parent_kind = 'branch'
                 AND NOT EXISTS (
                     SELECT 1 FROM ros_blocked_items AS b
                     WHERE b.stage = 'branch_summaries' AND b.item IN ('service', w.conversation_id::text)))))
  AND NOT ros_is_noise(c.session_key, c.settings)
  AND NOT EXISTS (
      SELECT 1 FROM ros_blocked_items AS b
      WHERE b.stage = o.parent_kind || '_summaries' AND b.item IN ('service', o.conversation_id::text));

-- One row an evaluation that `retrieval_quality` has made: the figures of its counted questions, each from 0 to 1.
-- They compare only within one question set of one size and one embedding model.
CREATE TABLE ros_retrieval_quality (
    measured_at   timestamptz PRIMARY KEY DEFAULT clock_timestamp(),
    question_set  text NOT NULL,
    questions     integer NOT NULL CHECK (questions >= 0),
    embedder      text NOT NULL,
    figures       jsonb NOT NULL CHECK (jsonb_typeof(figures) = 'object')
);
