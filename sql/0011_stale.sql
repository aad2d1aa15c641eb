-- Which summaries are stale: made by an older version or another model than the current one, made from a text that has
-- changed since, or asked for again by a person. Stats, checks, the sensor, the command line and the stages themselves
-- all read the one view below.
--
-- It costs what is stale, not what is stored: an index leads to the rows of another version or model, and a text that
-- changes after it was captured or made is noted by a trigger, so that no unchanged text is ever read or compared.

-- What each stage makes its rows with, as whoever ran it last said.
CREATE TABLE ros_refinement_versions (
    stage       text PRIMARY KEY,
    model       text NOT NULL CHECK (model <> ''),
    version     integer NOT NULL CHECK (version > 0),
    changed_at  timestamptz NOT NULL DEFAULT now()
);

-- The day of its conversation, which never changes: what is stale on a day is answered by the index below alone.
ALTER TABLE ros_summaries ADD COLUMN day date;
UPDATE ros_summaries AS s SET day = c.day FROM ros_conversations AS c WHERE c.id = s.conversation_id;
ALTER TABLE ros_summaries ALTER COLUMN day SET NOT NULL;
CREATE FUNCTION ros_summaries_set_day() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.day := (SELECT day FROM ros_conversations WHERE id = NEW.conversation_id);
    RETURN NEW;
END
$$;
CREATE TRIGGER ros_summaries_set_day BEFORE INSERT ON ros_summaries
    FOR EACH ROW EXECUTE FUNCTION ros_summaries_set_day();

CREATE INDEX ros_summaries_made_by ON ros_summaries (kind, pipeline_version, model) INCLUDE (day, id, conversation_id);

-- The hashes of a parent's children come from the index alone.
DROP INDEX ros_summaries_parent;
CREATE INDEX ros_summaries_parent ON ros_summaries (parent_id) INCLUDE (id, text_hash, earliest_at, seq);

-- Texts that have changed since they were first written. A row stays until the summary above it is known to hold the
-- new text; `change` counts, so that a change of the same moment is not forgotten with the one before it.
CREATE TABLE ros_changed_texts (
    kind        text NOT NULL CHECK (kind IN ('message', 'summary')),
    id          uuid NOT NULL,
    change      bigint NOT NULL DEFAULT 1,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, id)
);

CREATE FUNCTION ros_note_changed_text() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ros_changed_texts (kind, id) VALUES (TG_ARGV[0], NEW.id)
    ON CONFLICT (kind, id) DO UPDATE SET change = ros_changed_texts.change + 1, changed_at = now();
    RETURN NULL;
END
$$;
CREATE TRIGGER ros_messages_note_change AFTER UPDATE ON ros_messages
    FOR EACH ROW
    WHEN (ros_captured_hash(OLD.text_hash, OLD.tool_result, OLD.metadata)
          <> ros_captured_hash(NEW.text_hash, NEW.tool_result, NEW.metadata))
    EXECUTE FUNCTION ros_note_changed_text('message');
CREATE TRIGGER ros_summaries_note_change AFTER UPDATE ON ros_summaries
    FOR EACH ROW WHEN (OLD.text_hash <> NEW.text_hash AND NEW.kind <> 'root')
    EXECUTE FUNCTION ros_note_changed_text('summary');

-- Summaries that a person wants made again although nothing has changed.
CREATE TABLE ros_remine_requests (
    summary_id    uuid PRIMARY KEY REFERENCES ros_summaries (id),
    requested_at  timestamptz NOT NULL DEFAULT now()
);

-- What a summary is made from, as 64 hex digits. `inputs`: a line for each message or summary below it, in order, its
-- id and the hash of its text.
CREATE FUNCTION ros_input_hash(kind text, model text, version integer, inputs text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT encode(sha256(convert_to(kind || E'\n' || model || E'\n' || version || E'\n' || inputs, 'UTF8')), 'hex')
$$;

-- The inputs of a summary today; NULL when it has lost what it was made from.
CREATE FUNCTION ros_inputs_today(made_id uuid) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT string_agg(o.id || ' ' || o.hash, E'\n' ORDER BY o.place, o.seq)
    FROM (
        SELECT m.id, ros_captured_hash(m.text_hash, m.tool_result, m.metadata) AS hash,
               to_timestamp(x.ordinal) AS place, m.seq
        FROM ros_summary_sources AS x JOIN ros_messages AS m ON m.id = x.message_id
        WHERE x.summary_id = made_id
        UNION ALL
        SELECT k.id, k.text_hash, k.earliest_at, k.seq FROM ros_summaries AS k WHERE k.parent_id = made_id
    ) AS o
$$;

-- The summaries above a changed text, and whether each holds its texts as they are now. Those that came from elsewhere
-- (version 0) are taken as they are. Few texts change, which the planner can not know: LATERAL with OFFSET keeps it from
-- reading whole tables (see 0004).
CREATE VIEW ros_summaries_over_changes AS
SELECT s.id, s.conversation_id, s.day, s.kind, s.model, s.pipeline_version,
       s.pipeline_version = 0
       OR s.input_hash = ros_input_hash(s.kind, s.model, s.pipeline_version, ros_inputs_today(s.id)) AS current
FROM (
    SELECT DISTINCT x.id
    FROM ros_changed_texts AS t
    CROSS JOIN LATERAL (
        SELECT summary_id AS id FROM ros_summary_sources WHERE t.kind = 'message' AND message_id = t.id
        UNION ALL
        SELECT parent_id FROM ros_summaries WHERE t.kind = 'summary' AND id = t.id AND parent_id IS NOT NULL
        OFFSET 0
    ) AS x
) AS over
CROSS JOIN LATERAL (
    SELECT id, conversation_id, day, kind, model, pipeline_version, input_hash FROM ros_summaries
    WHERE id = over.id OFFSET 0
) AS s;

-- One chat service answers for the three levels of the tree: while one of them waits for it, so do the others.
CREATE OR REPLACE VIEW ros_blocked_items AS
SELECT stage, item FROM ros_failures WHERE next_attempt_at IS NULL OR next_attempt_at > now()
UNION
SELECT levels.stage, f.item
FROM ros_failures AS f
CROSS JOIN (VALUES ('leaf_summaries'), ('branch_summaries'), ('root_summaries')) AS levels (stage)
WHERE f.item = 'service' AND f.stage IN ('leaf_summaries', 'branch_summaries', 'root_summaries')
  AND f.next_attempt_at > now();

CREATE OR REPLACE FUNCTION ros_is_blocked(failed_stage text, failed_item text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT EXISTS (SELECT 1 FROM ros_blocked_items WHERE stage = failed_stage AND item = failed_item) $$;

-- Every stale summary once, why (a wish first), and whether its failure or the service's makes it wait. A summary of a
-- newer version than the current one is left alone: an older program must not undo a newer one's work.
CREATE VIEW ros_stale_summaries AS
SELECT found.id, found.conversation_id, found.day, found.kind, found.kind || '_summaries' AS stage, found.reason,
       mine.item IS NOT NULL OR service.item IS NOT NULL AS waits
FROM (
    SELECT s.id, s.conversation_id, s.day, s.kind, 'requested' AS reason
    FROM ros_remine_requests AS q JOIN ros_summaries AS s ON s.id = q.summary_id
    UNION ALL
    SELECT s.id, s.conversation_id, s.day, s.kind, s.reason
    FROM (
        SELECT s.id, s.conversation_id, s.day, s.kind, 'version' AS reason
        FROM ros_refinement_versions AS v
        JOIN ros_summaries AS s
          ON s.kind = split_part(v.stage, '_', 1) AND s.pipeline_version > 0 AND s.pipeline_version < v.version
        WHERE v.stage IN ('leaf_summaries', 'branch_summaries', 'root_summaries')
        UNION ALL
        -- Two ranges of the index, where one `<>` would walk all of it.
        SELECT s.id, s.conversation_id, s.day, s.kind, 'model'
        FROM ros_refinement_versions AS v
        JOIN ros_summaries AS s
          ON s.kind = split_part(v.stage, '_', 1) AND s.pipeline_version = v.version AND s.model < v.model
        WHERE v.stage IN ('leaf_summaries', 'branch_summaries', 'root_summaries')
        UNION ALL
        SELECT s.id, s.conversation_id, s.day, s.kind, 'model'
        FROM ros_refinement_versions AS v
        JOIN ros_summaries AS s
          ON s.kind = split_part(v.stage, '_', 1) AND s.pipeline_version = v.version AND s.model > v.model
        WHERE v.stage IN ('leaf_summaries', 'branch_summaries', 'root_summaries')
        UNION ALL
        SELECT o.id, o.conversation_id, o.day, o.kind, 'source'
        FROM ros_summaries_over_changes AS o
        WHERE NOT o.current
          AND NOT EXISTS (
              SELECT 1 FROM ros_refinement_versions AS v
              WHERE v.stage = o.kind || '_summaries'
                AND (o.pipeline_version < v.version OR (o.pipeline_version = v.version AND o.model <> v.model)))
    ) AS s
    WHERE NOT EXISTS (SELECT 1 FROM ros_remine_requests AS q WHERE q.summary_id = s.id)
) AS found
LEFT JOIN ros_blocked_items AS mine ON mine.stage = found.kind || '_summaries' AND mine.item = found.id::text
LEFT JOIN ros_blocked_items AS service ON service.stage = found.kind || '_summaries' AND service.item = 'service'
WHERE NOT EXISTS (
    SELECT 1 FROM ros_conversations AS c
    WHERE c.id = found.conversation_id AND ros_is_noise(c.session_key, c.settings));

-- The days with stale rows, by stage; `ready`: those that wait for nothing.
CREATE VIEW ros_stale_days AS
SELECT stage, day, count(*) AS items, count(*) FILTER (WHERE NOT waits) AS ready
FROM ros_stale_summaries GROUP BY stage, day;

-- What a changed text made stale is pending like new work, whatever else is: an outage between a late result and the
-- summaries above it must not leave them old.
CREATE VIEW ros_pending_changed_summaries AS
SELECT o.id, o.conversation_id, o.day, o.kind || '_summaries' AS stage
FROM ros_summaries_over_changes AS o
WHERE NOT o.current
  AND NOT EXISTS (
      SELECT 1 FROM ros_conversations AS c
      WHERE c.id = o.conversation_id AND ros_is_noise(c.session_key, c.settings))
  AND NOT EXISTS (
      SELECT 1 FROM ros_blocked_items AS b
      WHERE b.stage = o.kind || '_summaries' AND b.item IN ('service', o.id::text));

-- One more part of the view, whatever parts it has.
DO $$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE VIEW ros_pending_days AS %s UNION ALL '
        'SELECT stage, day, false, count(*) FROM ros_pending_changed_summaries GROUP BY stage, day',
        rtrim(pg_get_viewdef('ros_pending_days'), '; '));
END
$$;

-- Once, for what changed before changes were noted.
INSERT INTO ros_changed_texts (kind, id)
SELECT 'message', x.message_id
FROM ros_summaries AS s JOIN ros_summary_sources AS x ON x.summary_id = s.id
WHERE s.pipeline_version > 0
  AND s.input_hash IS DISTINCT FROM ros_input_hash(s.kind, s.model, s.pipeline_version, ros_inputs_today(s.id));
INSERT INTO ros_changed_texts (kind, id)
SELECT 'summary', k.id
FROM ros_summaries AS s JOIN ros_summaries AS k ON k.parent_id = s.id
WHERE s.pipeline_version > 0
  AND s.input_hash IS DISTINCT FROM ros_input_hash(s.kind, s.model, s.pipeline_version, ros_inputs_today(s.id));
