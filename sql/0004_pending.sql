-- What is pending, once: sensors, workers, stats and health all read these views.
--
-- The planner can not know that few conversations are unseen, so it would read whole tables to answer a question that is
-- asked every few seconds: LATERAL, with a LIMIT, OFFSET or aggregate that can not be pulled up, keeps it to the rows of
-- the conversations in question. And a function that looks into the ledger is called for every row it stands beside; an
-- anti-join reads the small ledger once.

-- The sizes and waits of summary batches.
CREATE FUNCTION ros_batch_rules(
    OUT leaf_batch integer, OUT leaf_min integer, OUT leaf_idle interval,
    OUT leaf_stale_min integer, OUT leaf_stale interval,
    OUT branch_batch integer, OUT branch_min integer, OUT root_batch integer, OUT root_min integer
) LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 10, 5, interval '15 minutes', 2, interval '4 days', 8, 5, 5, 3 $$;

-- Whether something that failed has to wait. While a model service is down its stage rests as a whole until the next
-- probe, with one ledger row for all of it: item 'service'.
CREATE FUNCTION ros_is_blocked(failed_stage text, failed_item text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT 1 FROM ros_failures
        WHERE stage = failed_stage AND item = failed_item
          AND (next_attempt_at IS NULL OR next_attempt_at > now()))
$$;

CREATE VIEW ros_blocked_items AS
SELECT stage, item FROM ros_failures WHERE next_attempt_at IS NULL OR next_attempt_at > now();

-- Conversations whose messages a stage has not all seen.
CREATE VIEW ros_unseen_conversations AS
SELECT stages.stage, c.id AS conversation_id, c.day, c.revision, c.updated_at,
       ros_is_noise(c.session_key, c.settings) AS noise
FROM ros_conversations AS c
CROSS JOIN (VALUES ('messages'), ('message_embeddings'), ('leaf_summaries')) AS stages (stage)
LEFT JOIN ros_stage_marks AS k ON k.stage = stages.stage AND k.conversation_id = c.id
WHERE k.revision IS NULL OR k.revision < c.revision;

CREATE VIEW ros_pending_message_embeddings AS
SELECT m.id, m.seq, m.conversation_id, u.day, u.revision, m.text_hash, f.id AS model_id
FROM ros_unseen_conversations AS u
CROSS JOIN (SELECT id FROM ros_embedding_models WHERE filling) AS f
CROSS JOIN LATERAL (
    SELECT id, seq, conversation_id, text_hash FROM ros_messages
    WHERE conversation_id = u.conversation_id AND (btrim(content) <> '' OR btrim(coalesce(tool_result, '')) <> '')
    OFFSET 0
) AS m
LEFT JOIN LATERAL (
    SELECT true AS found FROM ros_embeddings AS e
    WHERE e.model_id = f.id AND e.owner_kind = 'message' AND e.owner_id = m.id AND e.content_hash = m.text_hash
    LIMIT 1
) AS present ON true
WHERE u.stage = 'message_embeddings'
  AND present.found IS NULL
  AND NOT ros_is_blocked('message_embeddings', 'service')
  AND NOT EXISTS (SELECT 1 FROM ros_blocked_items AS b WHERE b.stage = 'message_embeddings' AND b.item = m.id::text);

-- Here every summary is looked at each time, so its vectors are read in one go: those of the filling model alone, which a
-- scalar subquery names to the index.
CREATE VIEW ros_pending_summary_embeddings AS
SELECT s.id, s.seq, s.conversation_id, c.day, s.text_hash, f.id AS model_id
FROM ros_summaries AS s
JOIN ros_conversations AS c ON c.id = s.conversation_id
CROSS JOIN (SELECT id FROM ros_embedding_models WHERE filling) AS f
WHERE NOT EXISTS (
      SELECT 1 FROM ros_embeddings AS e
      WHERE e.model_id = (SELECT id FROM ros_embedding_models WHERE filling) AND e.owner_kind = 'summary'
        AND e.owner_id = s.id AND e.content_hash = s.text_hash)
  AND NOT ros_is_blocked('summary_embeddings', 'service')
  AND NOT EXISTS (SELECT 1 FROM ros_blocked_items AS b WHERE b.stage = 'summary_embeddings' AND b.item = s.id::text);

-- Conversations with messages in no leaf yet, and why they are due now (due IS NULL: not yet).
CREATE VIEW ros_unsummarised AS
SELECT u.conversation_id, u.day, u.revision, u.updated_at, w.waiting,
       CASE WHEN w.waiting >= r.leaf_batch THEN 'full'
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

CREATE VIEW ros_pending_leaf_summaries AS
SELECT u.conversation_id, u.day, u.waiting, u.due FROM ros_unsummarised AS u
WHERE u.due IS NOT NULL
  AND NOT ros_is_blocked('leaf_summaries', 'service')
  AND NOT EXISTS (
      SELECT 1 FROM ros_blocked_items AS b WHERE b.stage = 'leaf_summaries' AND b.item = u.conversation_id::text);

CREATE VIEW ros_pending_parent_summaries AS
SELECT o.conversation_id, c.day, o.parent_kind, o.waiting,
       CASE WHEN o.waiting >= o.batch THEN 'full' ELSE 'idle' END AS due
FROM (
    SELECT s.conversation_id,
           CASE s.kind WHEN 'leaf' THEN 'branch' ELSE 'root' END AS parent_kind,
           CASE s.kind WHEN 'leaf' THEN r.branch_batch ELSE r.root_batch END AS batch,
           CASE s.kind WHEN 'leaf' THEN r.branch_min ELSE r.root_min END AS least,
           count(*) AS waiting
    FROM ros_summaries AS s
    CROSS JOIN ros_batch_rules() AS r
    WHERE s.parent_id IS NULL AND s.kind <> 'root'
    GROUP BY s.conversation_id, s.kind, r.branch_batch, r.root_batch, r.branch_min, r.root_min
    HAVING count(*) >= CASE s.kind WHEN 'leaf' THEN r.branch_min ELSE r.root_min END
) AS o
JOIN ros_conversations AS c ON c.id = o.conversation_id
CROSS JOIN ros_batch_rules() AS r
WHERE (o.waiting >= o.batch OR c.updated_at <= now() - r.leaf_idle)
  AND NOT ros_is_noise(c.session_key, c.settings)
  AND NOT EXISTS (
      SELECT 1 FROM ros_blocked_items AS b
      WHERE b.stage = o.parent_kind || '_summaries' AND b.item IN ('service', o.conversation_id::text));

-- Every stage's days with work. `timed`: only the passing of time made it due, so a schedule looks for it; a sensor
-- answers the rest.
CREATE VIEW ros_pending_days AS
SELECT 'messages' AS stage, day, false AS timed, count(*) AS items
FROM ros_unseen_conversations WHERE stage = 'messages' GROUP BY day
UNION ALL
SELECT 'message_embeddings', day, false, count(*) FROM ros_pending_message_embeddings GROUP BY day
UNION ALL
SELECT 'leaf_summaries', day, due <> 'full', count(*) FROM ros_pending_leaf_summaries GROUP BY day, due <> 'full'
UNION ALL
SELECT parent_kind || '_summaries', day, due <> 'full', count(*)
FROM ros_pending_parent_summaries GROUP BY parent_kind, day, due <> 'full'
UNION ALL
SELECT 'summary_embeddings', day, false, count(*) FROM ros_pending_summary_embeddings GROUP BY day;
