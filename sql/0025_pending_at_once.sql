-- What is pending, asked for at once: in a store in which nothing is done yet the answer must not cost what is left to
-- do. Every view keeps its meaning.

-- Whether a batch is due is settled by as many waiting messages as make one, looked for from the newest on, because
-- leaves take the oldest first; how many there are in all is counted for those who read that column alone. OFFSET 0 keeps
-- each look one into the key, whatever the planner believes of a table that is being filled.
CREATE OR REPLACE VIEW ros_unsummarised AS
SELECT u.conversation_id, u.day, u.revision, u.updated_at,
       (SELECT count(*) FROM ros_messages AS m
        WHERE m.conversation_id = u.conversation_id
          AND ros_is_refined(m.content, m.tool_name, m.tool_result, m.metadata)
          AND NOT EXISTS (SELECT 1 FROM ros_summary_sources AS s WHERE s.message_id = m.id)) AS waiting,
       CASE WHEN w.found >= r.leaf_batch OR (w.found >= r.leaf_min AND NOT u.active) THEN 'full'
            WHEN w.found >= r.leaf_min AND u.updated_at <= now() - r.leaf_idle THEN 'idle'
            WHEN w.found >= r.leaf_stale_min AND u.updated_at <= now() - r.leaf_stale THEN 'stale'
       END AS due
FROM ros_unseen_conversations AS u
CROSS JOIN ros_batch_rules() AS r
CROSS JOIN LATERAL (
    SELECT count(*) AS found FROM (
        SELECT 1 FROM ros_messages AS m
        WHERE m.conversation_id = u.conversation_id
          AND ros_is_refined(m.content, m.tool_name, m.tool_result, m.metadata)
          AND NOT EXISTS (SELECT 1 FROM ros_summary_sources AS s WHERE s.message_id = m.id OFFSET 0)
        ORDER BY m.created_at DESC, m.seq DESC
        LIMIT r.leaf_batch) AS first
) AS w
WHERE u.stage = 'leaf_summaries' AND NOT u.noise AND w.found > 0;

-- The conversations of ros_pending_leaf_summaries, each found with no more looks than its rule asks for: two of an old
-- one.
CREATE VIEW ros_conversations_with_a_due_leaf AS
SELECT u.conversation_id
FROM ros_unseen_conversations AS u
CROSS JOIN ros_batch_rules() AS r
CROSS JOIN LATERAL (
    SELECT 1 FROM ros_messages AS m
    WHERE m.conversation_id = u.conversation_id
      AND ros_is_refined(m.content, m.tool_name, m.tool_result, m.metadata)
      AND NOT EXISTS (SELECT 1 FROM ros_summary_sources AS s WHERE s.message_id = m.id OFFSET 0)
    ORDER BY m.created_at DESC, m.seq DESC
    OFFSET CASE WHEN u.updated_at <= now() - r.leaf_stale THEN r.leaf_stale_min
                WHEN u.updated_at <= now() - r.leaf_idle OR NOT u.active THEN r.leaf_min
                ELSE r.leaf_batch
           END - 1
    LIMIT 1
) AS w
WHERE u.stage = 'leaf_summaries' AND NOT u.noise
  AND NOT ros_is_blocked('leaf_summaries', 'service')
  AND NOT EXISTS (
      SELECT 1 FROM ros_blocked_items AS b WHERE b.stage = 'leaf_summaries' AND b.item = u.conversation_id::text);

-- As before, but the rows are counted by as few columns as tell them apart.
CREATE OR REPLACE VIEW ros_waiting_children AS
SELECT o.conversation_id,
       CASE o.kind WHEN 'leaf' THEN 'branch' ELSE 'root' END AS parent_kind,
       CASE o.kind WHEN 'leaf' THEN r.branch_batch ELSE r.root_batch END AS batch,
       o.waiting
FROM (
    SELECT conversation_id, kind, count(*) AS waiting FROM ros_summaries AS s
    WHERE parent_id IS NULL AND kind <> 'root' AND ros_is_trusted(s) GROUP BY conversation_id, kind
) AS o
CROSS JOIN ros_batch_rules() AS r
WHERE o.waiting >= CASE o.kind WHEN 'leaf' THEN r.branch_min ELSE r.root_min END;

CREATE OR REPLACE VIEW ros_pending_parent_summaries AS
SELECT o.conversation_id, c.day, o.parent_kind, o.waiting,
       CASE WHEN o.waiting >= o.batch OR NOT c.active THEN 'full' ELSE 'idle' END AS due
FROM ros_waiting_children AS o
JOIN ros_conversations AS c ON c.id = o.conversation_id
CROSS JOIN ros_batch_rules() AS r
WHERE (o.waiting >= o.batch
       OR ((c.updated_at <= now() - r.leaf_idle OR NOT c.active)
           AND NOT EXISTS (
               SELECT 1 FROM ros_conversations_with_a_due_leaf AS p WHERE p.conversation_id = o.conversation_id)
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

-- As before, but the day of what is found comes from the index that finds it, not from a row of the table.
CREATE OR REPLACE VIEW ros_unmined_leaves AS
SELECT s.id, s.seq, s.conversation_id, s.day, s.latest_at, s.text_hash,
       NOT EXISTS (SELECT 1 FROM ros_wiki_extractions AS x WHERE x.leaf_id = s.id) AS new
FROM ros_summaries AS s
WHERE s.kind = 'leaf'
  AND NOT EXISTS (SELECT 1 FROM ros_wiki_extractions AS x WHERE x.leaf_id = s.id AND x.text_hash = s.text_hash)
  AND (ros_is_trusted(s)
       OR EXISTS (SELECT 1 FROM ros_wiki_extractions AS x WHERE x.leaf_id = s.id AND x.outcome = 'patches'))
  AND NOT EXISTS (
      SELECT 1 FROM ros_conversations AS c
      WHERE c.id = s.conversation_id AND ros_is_noise(c.session_key, c.settings));

-- As before, but without a tagger no leaf is looked at.
CREATE OR REPLACE VIEW ros_pending_tag_proposals AS
SELECT id, conversation_id, day, text_hash FROM ros_taggable_leaves
WHERE fresh AND NOT ros_is_blocked('tag_proposals', 'service')
  AND EXISTS (SELECT 1 FROM ros_refinement_versions WHERE stage = 'tag_proposals');
