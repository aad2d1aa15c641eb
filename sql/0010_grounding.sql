-- How far a summary can be trusted, and what of its sources stands in it.

-- The share of its source messages (of a parent: its children) that left at least one of their own words or identifiers
-- in it, 0 to 1, of those that have any; and the ids of those that left none.
ALTER TABLE ros_summaries
    ADD COLUMN coverage real CHECK (coverage BETWEEN 0 AND 1),
    ADD COLUMN uncovered uuid[] NOT NULL DEFAULT '{}';

-- From which grounding on a summary is trusted.
CREATE FUNCTION ros_trust_floor() RETURNS real
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 0.6::real $$;

-- Whether a summary may go into parents and whatever else is made from summaries. One that is not stays where it is,
-- readable and marked by its own figure, until it is made again. Without identifiers, or made elsewhere: trusted.
CREATE FUNCTION ros_is_trusted(summary ros_summaries) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT summary.grounding IS NULL OR summary.grounding >= ros_trust_floor() $$;

-- Conversations with enough trusted children without a parent for one.
CREATE VIEW ros_waiting_children AS
SELECT s.conversation_id,
       CASE s.kind WHEN 'leaf' THEN 'branch' ELSE 'root' END AS parent_kind,
       CASE s.kind WHEN 'leaf' THEN r.branch_batch ELSE r.root_batch END AS batch,
       count(*) AS waiting
FROM ros_summaries AS s
CROSS JOIN ros_batch_rules() AS r
WHERE s.parent_id IS NULL AND s.kind <> 'root' AND ros_is_trusted(s)
GROUP BY s.conversation_id, s.kind, r.branch_batch, r.root_batch, r.branch_min, r.root_min
HAVING count(*) >= CASE s.kind WHEN 'leaf' THEN r.branch_min ELSE r.root_min END;

-- As before, of trusted children alone; and a parent of fewer than a full batch waits for what is still due below it:
-- else it would miss the child that another worker is just making, and the tree would depend on who was quicker. What
-- failed and rests holds nobody up.
CREATE OR REPLACE VIEW ros_pending_parent_summaries AS
SELECT o.conversation_id, c.day, o.parent_kind, o.waiting,
       CASE WHEN o.waiting >= o.batch THEN 'full' ELSE 'idle' END AS due
FROM ros_waiting_children AS o
JOIN ros_conversations AS c ON c.id = o.conversation_id
CROSS JOIN ros_batch_rules() AS r
WHERE (o.waiting >= o.batch
       OR (c.updated_at <= now() - r.leaf_idle
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
