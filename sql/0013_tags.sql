-- Tags: key:value literals on conversations and summaries, the vocabulary they come from, and who decided what.

-- A tag's text in its one spelling: NFKC, small letters, no format characters, runs of white space, control characters
-- and slashes as one hyphen, none at the ends. `tags/literals.py` says the same in Python, and a test holds them together.
-- Small letters are those of Unicode's simple mapping, on every server that has a collation of its own for them.
DO $$
BEGIN
    EXECUTE format($body$
        CREATE FUNCTION ros_tag_text(source text, longest integer) RETURNS text
        LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
        AS $f$
            SELECT rtrim(left(ltrim(regexp_replace(plain, '[\u0001-\u0020\u007f-\u00a0\u1680\u2028\u2029/-]+', '-', 'g'), '-'),
                              longest), '-')
            FROM (
                SELECT normalize(lower(regexp_replace(normalize(source, NFKC),
                    '[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f]+',
                    '', 'g') COLLATE %s), NFKC) AS plain
            ) AS p
        $f$
    $body$, CASE WHEN EXISTS (SELECT FROM pg_collation WHERE collname = 'pg_c_utf8') THEN '"pg_c_utf8"' ELSE '"default"' END);
END
$$;

-- Every change of a tag or of a value of the vocabulary has a number of its own, so that who decides can say what was
-- seen. Undoing a decision brings the former number back with the former row: a number always means the same content.
CREATE SEQUENCE ros_tag_revisions;
CREATE FUNCTION ros_tag_count_revision() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.revision = OLD.revision THEN
        NEW.revision := nextval('ros_tag_revisions');
    END IF;
    RETURN NEW;
END
$$;

CREATE TABLE ros_tags (
    id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    entity_kind       text NOT NULL CHECK (entity_kind IN ('conversation', 'summary')),
    -- No foreign key: a tag outlives what it stands on until it is reaped.
    entity_id         uuid NOT NULL,
    -- The conversation that the entity is, or that the summary belongs to.
    conversation_id   uuid NOT NULL,
    tag_key           text NOT NULL CHECK (tag_key <> '' AND length(tag_key) <= 64 AND strpos(tag_key, ':') = 0),
    tag_value         text NOT NULL CHECK (tag_value <> '' AND length(tag_value) <= 128),
    -- As it was written, where that differs from the value.
    display           text NOT NULL DEFAULT '' CHECK (length(display) <= 200),
    -- A rejected row is kept: the same literal is never proposed again on that entity.
    status            text NOT NULL CHECK (status IN ('suggested', 'accepted', 'rejected')),
    source            text NOT NULL CHECK (source IN ('rule', 'model', 'keyphrases', 'person', 'import')),
    confidence        real CHECK (confidence BETWEEN 0 AND 1),
    reason            text NOT NULL DEFAULT '' CHECK (length(reason) <= 400),
    -- The rule, the model or the person that wrote it first.
    proposed_by       text NOT NULL CHECK (proposed_by <> '' AND length(proposed_by) <= 300),
    -- That of the refinement that proposed it; 0 where none did.
    pipeline_version  integer NOT NULL DEFAULT 0,
    -- Whether a tagger would have it taken off again, and whether a person has refused that.
    removal           text CHECK (removal IN ('suggested', 'refused')),
    removal_reason    text NOT NULL DEFAULT '' CHECK (length(removal_reason) <= 400),
    -- Filled when a person has decided: such a tag is reviewed.
    decided_by        text CHECK (decided_by <> '' AND length(decided_by) <= 300),
    decided_at        timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    revision          bigint NOT NULL DEFAULT nextval('ros_tag_revisions'),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    CHECK (entity_kind <> 'conversation' OR entity_id = conversation_id),
    UNIQUE (entity_kind, entity_id, tag_key, tag_value)
);
CREATE INDEX ros_tags_accepted ON ros_tags (tag_key, tag_value, conversation_id) WHERE status = 'accepted';
CREATE INDEX ros_tags_literal ON ros_tags (tag_key, tag_value);
CREATE INDEX ros_tags_conversation ON ros_tags (conversation_id, status);
CREATE INDEX ros_tags_waiting ON ros_tags (conversation_id) WHERE status = 'suggested' OR removal = 'suggested';
CREATE TRIGGER ros_tags_count_revision BEFORE UPDATE ON ros_tags
    FOR EACH ROW EXECUTE FUNCTION ros_tag_count_revision();

CREATE TABLE ros_tag_taxonomy (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tag_key      text NOT NULL CHECK (tag_key <> '' AND length(tag_key) <= 64 AND strpos(tag_key, ':') = 0),
    tag_value    text NOT NULL CHECK (tag_value <> '' AND length(tag_value) <= 128),
    display      text NOT NULL DEFAULT '' CHECK (length(display) <= 200),
    status       text NOT NULL CHECK (status IN ('suggested', 'accepted', 'rejected')),
    -- The value of the same key that this one was merged into. Never itself an alias: chains are kept flat.
    alias_of     text CHECK (alias_of <> tag_value),
    description  text NOT NULL DEFAULT '' CHECK (length(description) <= 1000),
    source       text NOT NULL CHECK (source IN ('model', 'keyphrases', 'person', 'import')),
    proposed_by  text NOT NULL CHECK (proposed_by <> '' AND length(proposed_by) <= 300),
    decided_by   text CHECK (decided_by <> '' AND length(decided_by) <= 300),
    decided_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    revision     bigint NOT NULL DEFAULT nextval('ros_tag_revisions'),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    UNIQUE (tag_key, tag_value)
);
CREATE INDEX ros_tag_taxonomy_aliases ON ros_tag_taxonomy (tag_key, alias_of) WHERE alias_of IS NOT NULL;
CREATE TRIGGER ros_tag_taxonomy_count_revision BEFORE UPDATE ON ros_tag_taxonomy
    FOR EACH ROW EXECUTE FUNCTION ros_tag_count_revision();

-- What people decided, a row for each tag or value that a decision changed; the rows of one decision share its id. A
-- decision is undone by another one, which puts the former rows back.
CREATE TABLE ros_tag_decisions (
    id          bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    decision    uuid NOT NULL,
    action      text NOT NULL CHECK (action IN ('decide', 'add', 'suggest_removal', 'value', 'merge', 'undo')),
    -- A row of ros_tags, or of ros_tag_taxonomy.
    subject     text NOT NULL CHECK (subject IN ('tag', 'value')),
    row_id      uuid NOT NULL,
    tag_key     text NOT NULL,
    tag_value   text NOT NULL,
    -- The whole row; NULL where there was, or is, none.
    before      jsonb,
    after       jsonb,
    decided_by  text NOT NULL CHECK (decided_by <> ''),
    decided_at  timestamptz NOT NULL DEFAULT now(),
    -- The decision that has undone this one, and the one that this one undoes.
    undone_by   uuid,
    undoes      uuid
);
CREATE INDEX ros_tag_decisions_decision ON ros_tag_decisions (decision);
CREATE INDEX ros_tag_decisions_time ON ros_tag_decisions (decided_at DESC, id DESC);
CREATE INDEX ros_tag_decisions_row ON ros_tag_decisions (row_id);

-- A value is spelled in small letters, where the exact words of a secret are not found; its display form has them. What
-- is taken out of the one goes from the other.
CREATE FUNCTION ros_tag_follow_redaction() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.tag_value := ros_tag_text(NEW.display, 128);
    RETURN NEW;
END
$$;
CREATE TRIGGER ros_tags_follow_redaction BEFORE UPDATE OF display ON ros_tags
    FOR EACH ROW WHEN (NEW.display LIKE '%[redacted:%' AND OLD.display NOT LIKE '%[redacted:%')
    EXECUTE FUNCTION ros_tag_follow_redaction();
CREATE TRIGGER ros_tag_taxonomy_follow_redaction BEFORE UPDATE OF display ON ros_tag_taxonomy
    FOR EACH ROW WHEN (NEW.display LIKE '%[redacted:%' AND OLD.display NOT LIKE '%[redacted:%')
    EXECUTE FUNCTION ros_tag_follow_redaction();

CREATE FUNCTION ros_tag_decisions_follow_redaction() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.tag_value := ros_tag_text(coalesce(NEW.after, NEW.before) ->> 'display', 128);
    NEW.before := NEW.before || jsonb_build_object('tag_value', NEW.tag_value);
    NEW.after := NEW.after || jsonb_build_object('tag_value', NEW.tag_value);
    RETURN NEW;
END
$$;
CREATE TRIGGER ros_tag_decisions_follow_redaction BEFORE UPDATE OF before, after ON ros_tag_decisions
    FOR EACH ROW WHEN (coalesce(NEW.after, NEW.before) ->> 'display' LIKE '%[redacted:%')
    EXECUTE FUNCTION ros_tag_decisions_follow_redaction();

-- Whoever writes literals of a key holds this lock shared, whoever merges its values holds it alone: else a tag could be
-- written with a value that has just become another one's alias.
CREATE FUNCTION ros_tag_lock(locked_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT hashtextextended('ros_tags ' || locked_key, 0) $$;

-- The value that a literal means: itself, or what it was merged into.
CREATE FUNCTION ros_tag_target(wanted_key text, wanted_value text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT coalesce(
        (SELECT alias_of FROM ros_tag_taxonomy WHERE tag_key = wanted_key AND tag_value = wanted_value), wanted_value)
$$;

-- The conversations that carry an accepted tag, on the session or on any of its summaries. What a search or a listing
-- by tag asks: `conversation_id IN (SELECT ros_conversations_with_tag('topic', 'caching'))` is one look into an index.
CREATE FUNCTION ros_conversations_with_tag(wanted_key text, wanted_value text) RETURNS SETOF uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT DISTINCT conversation_id FROM ros_tags
    WHERE status = 'accepted' AND tag_key = wanted_key AND tag_value = (SELECT ros_tag_target(wanted_key, wanted_value))
$$;

-- The same of one conversation.
CREATE FUNCTION ros_conversation_has_tag(wanted_conversation uuid, wanted_key text, wanted_value text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT 1 FROM ros_tags
        WHERE status = 'accepted' AND tag_key = wanted_key
          AND tag_value = (SELECT ros_tag_target(wanted_key, wanted_value))
          AND conversation_id = wanted_conversation)
$$;

-- A conversation's accepted tags, those of its summaries among them, each literal once. `reviewed`: a person has added or
-- accepted it; else it is the automatic rule's.
CREATE VIEW ros_conversation_tags AS
SELECT conversation_id, tag_key, tag_value, max(display) AS display, bool_or(decided_by IS NOT NULL) AS reviewed,
       bool_or(entity_kind = 'conversation') AS on_conversation, min(created_at) AS created_at
FROM ros_tags WHERE status = 'accepted'
GROUP BY conversation_id, tag_key, tag_value;

-- Conversations for which the rule below has spoken. It does so once: a tag that a person has taken off, merged away or
-- replaced does not come back.
CREATE TABLE ros_tag_rule_marks (
    conversation_id  uuid PRIMARY KEY,
    marked_at        timestamptz NOT NULL DEFAULT now()
);

-- The rule: `project:<name>` for a conversation whose settings name its project, accepted at once. Says whether it wrote.
-- A lock that is not to be had soon is given up, so that capture never waits for a reviewer.
CREATE FUNCTION ros_apply_project_rule(ruled_id uuid, session_key text, settings jsonb) RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = '500ms'
AS $$
DECLARE
    named text := CASE WHEN jsonb_typeof(settings -> 'project') = 'string' THEN settings ->> 'project' END;
    ruled text := ros_tag_target('project', ros_tag_text(named, 128));
    written bigint;
BEGIN
    IF ruled IS NULL OR ruled = '' OR strpos(named, '[redacted') > 0 OR ros_is_noise(session_key, settings)
       OR EXISTS (SELECT 1 FROM ros_tag_taxonomy WHERE tag_key = 'project' AND tag_value = ruled AND status = 'rejected')
    THEN
        RETURN false;
    END IF;
    -- While somebody merges values of this key it is not known which one this is; the next sweep will.
    IF NOT pg_try_advisory_xact_lock_shared(ros_tag_lock('project')) THEN
        RETURN false;
    END IF;
    INSERT INTO ros_tag_rule_marks (conversation_id) VALUES (ruled_id) ON CONFLICT DO NOTHING;
    IF NOT FOUND OR EXISTS (
        SELECT 1 FROM ros_tags
        WHERE entity_kind = 'conversation' AND entity_id = ruled_id AND tag_key = 'project' AND status = 'accepted')
    THEN
        RETURN false;
    END IF;
    INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, display, status, source, confidence,
                          reason, proposed_by)
    VALUES ('conversation', ruled_id, ruled_id, 'project', ruled,
            CASE WHEN named = ruled OR ruled <> ros_tag_text(named, 128) THEN '' ELSE left(named, 200) END, 'accepted', 'rule',
            1, 'the folder that the session ran in', 'settings.project')
    -- What a tagger has suggested before is confirmed; what a person has decided stays.
    ON CONFLICT (entity_kind, entity_id, tag_key, tag_value) DO UPDATE
    SET status = 'accepted', source = 'rule', confidence = 1, reason = excluded.reason, proposed_by = excluded.proposed_by
    WHERE ros_tags.status = 'suggested';
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written > 0;
END
$$;

-- At capture, whichever way in, in its transaction; what goes wrong here costs the tag and never the message, and is made
-- up for by the next sweep (`ros_unruled_conversations`).
CREATE FUNCTION ros_conversations_apply_project_rule() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ros_apply_project_rule(NEW.id, NEW.session_key, NEW.settings);
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no project tag for conversation %: %', NEW.id, SQLERRM;
    RETURN NULL;
END
$$;
CREATE TRIGGER ros_conversations_tag_new AFTER INSERT ON ros_conversations
    FOR EACH ROW WHEN (NEW.settings ? 'project') EXECUTE FUNCTION ros_conversations_apply_project_rule();
CREATE TRIGGER ros_conversations_tag_changed AFTER UPDATE OF settings ON ros_conversations
    FOR EACH ROW WHEN (NEW.settings ? 'project' AND NEW.settings -> 'project' IS DISTINCT FROM OLD.settings -> 'project')
    EXECUTE FUNCTION ros_conversations_apply_project_rule();

CREATE INDEX ros_conversations_project ON ros_conversations (id) WHERE settings ? 'project';
CREATE VIEW ros_unruled_conversations AS
SELECT c.id, c.day, c.session_key, c.settings FROM ros_conversations AS c
WHERE c.settings ? 'project' AND NOT EXISTS (SELECT 1 FROM ros_tag_rule_marks AS k WHERE k.conversation_id = c.id);

SELECT count(*) FILTER (WHERE ros_apply_project_rule(id, session_key, settings)) FROM ros_unruled_conversations;

-- What the tagger has made of each leaf. `dropped`: it failed twice, and is not asked about this text again by itself.
CREATE TABLE ros_tag_extractions (
    summary_id        uuid PRIMARY KEY,
    text_hash         uuid NOT NULL,
    status            text NOT NULL CHECK (status IN ('done', 'skipped', 'dropped')),
    model             text NOT NULL CHECK (model <> ''),
    pipeline_version  integer NOT NULL,
    proposals         integer NOT NULL DEFAULT 0,
    error             text NOT NULL DEFAULT '',
    tagged_at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ros_tag_extractions_seen ON ros_tag_extractions (summary_id) INCLUDE (text_hash, pipeline_version);
CREATE INDEX ros_tag_extractions_dropped ON ros_tag_extractions (tagged_at) WHERE status = 'dropped';
CREATE INDEX ros_summaries_leaves ON ros_summaries (id) INCLUDE (text_hash, conversation_id, day, grounding)
    WHERE kind = 'leaf';

-- Every leaf that may be tagged, with what the tagger knew of it. None while tagging is off: then no version is announced.
CREATE VIEW ros_taggable_leaves AS
SELECT s.id, s.conversation_id, s.day, s.text_hash,
       x.summary_id IS NULL OR x.text_hash <> s.text_hash AS fresh,
       x.text_hash = s.text_hash AND x.pipeline_version < v.version AS stale
FROM ros_refinement_versions AS v
CROSS JOIN ros_summaries AS s
LEFT JOIN ros_tag_extractions AS x ON x.summary_id = s.id
WHERE v.stage = 'tag_proposals' AND s.kind = 'leaf' AND ros_is_trusted(s)
  AND (x.summary_id IS NULL OR x.text_hash <> s.text_hash OR x.pipeline_version < v.version)
  AND NOT EXISTS (
      SELECT 1 FROM ros_conversations AS c WHERE c.id = s.conversation_id AND ros_is_noise(c.session_key, c.settings));

CREATE VIEW ros_pending_tag_proposals AS
SELECT id, conversation_id, day, text_hash FROM ros_taggable_leaves
WHERE fresh AND NOT ros_is_blocked('tag_proposals', 'service');

-- One more part of each view, whatever parts it has.
DO $$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE VIEW ros_pending_days AS %s UNION ALL '
        'SELECT ''tag_proposals'', day, false, count(*) FROM ros_pending_tag_proposals GROUP BY day',
        rtrim(pg_get_viewdef('ros_pending_days'), '; '));
    EXECUTE format(
        'CREATE OR REPLACE VIEW ros_stale_days AS %s UNION ALL '
        'SELECT ''tag_proposals'', day, count(*), count(*) FILTER (WHERE NOT ros_is_blocked(''tag_proposals'', ''service'')) '
        'FROM ros_taggable_leaves WHERE stale GROUP BY day',
        rtrim(pg_get_viewdef('ros_stale_days'), '; '));
END
$$;
