-- The wiki: pages about lasting subjects, made of patches that are mined from leaf summaries. A page is what its applied
-- patches say together, so that any of them can be taken back; every sentence leads to leaves, and they to messages.

CREATE TABLE ros_wiki_topics (
    id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Its address, for ever: a page that is merged leaves a redirect.
    slug           text NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$' AND length(slug) <= 80),
    title          text NOT NULL CHECK (btrim(title) <> '' AND length(title) <= 120),
    -- live: it says something. empty: all its patches were taken back. merged: another page says it.
    status         text NOT NULL DEFAULT 'empty' CHECK (status IN ('live', 'empty', 'merged')),
    aliases        text[] NOT NULL DEFAULT '{}',
    entities       text[] NOT NULL DEFAULT '{}',
    -- The names under which a proposal is the same page, and what it shares with others; folded.
    alias_keys     text[] NOT NULL DEFAULT '{}',
    keys           text[] NOT NULL DEFAULT '{}',
    page           jsonb NOT NULL DEFAULT '{}',
    page_version   integer NOT NULL DEFAULT 0,
    revision       integer NOT NULL DEFAULT 0,
    bullets        integer NOT NULL DEFAULT 0,
    archived       integer NOT NULL DEFAULT 0,
    search_text    text NOT NULL DEFAULT '',
    first_at       timestamptz,
    latest_at      timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    text_hash      uuid NOT NULL GENERATED ALWAYS AS (md5(search_text)::uuid) STORED,
    content_tsv    tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(ros_analyse(title, NULL), 'A') || setweight(ros_analyse(search_text, NULL), 'D')) STORED
);
CREATE INDEX ros_wiki_topics_tsv ON ros_wiki_topics USING gin (content_tsv);
CREATE INDEX ros_wiki_topics_alias_keys ON ros_wiki_topics USING gin (alias_keys);
CREATE INDEX ros_wiki_topics_keys ON ros_wiki_topics USING gin (keys);
CREATE INDEX ros_wiki_topics_latest ON ros_wiki_topics (updated_at DESC, id);
-- What is not embedded yet is found without reading the pages.
CREATE INDEX ros_wiki_topics_hashes ON ros_wiki_topics (id, text_hash) WHERE status = 'live';

CREATE TABLE ros_wiki_patches (
    id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    seq               bigint NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    kind              text NOT NULL CHECK (kind IN ('edit', 'merge', 'split')),
    -- replaced: its leaf was mined again and says it otherwise, or the pages that a proposal is about have changed.
    status            text NOT NULL CHECK (status IN ('proposed', 'applied', 'rejected', 'reverted', 'replaced')),
    -- An edit comes from a leaf; merges and splits from the consolidation.
    leaf_id           uuid REFERENCES ros_summaries (id),
    -- The leaf's text when it was mined.
    leaf_hash         uuid,
    -- The page it changes; NULL while an edit that would begin a page has not been accepted.
    topic_id          uuid REFERENCES ros_wiki_topics (id),
    -- Of a merge the page that goes, of a split the page that comes.
    other_id          uuid REFERENCES ros_wiki_topics (id),
    title             text NOT NULL CHECK (btrim(title) <> ''),
    payload           jsonb NOT NULL CHECK (jsonb_typeof(payload) = 'object'),
    content_hash      uuid NOT NULL,
    claim_keys        uuid[] NOT NULL DEFAULT '{}',
    -- How the page was found, and in words why.
    decision          text NOT NULL CHECK (decision IN (
        'slug', 'redirect', 'alias', 'entities', 'search', 'new', 'consolidation')),
    reason            text NOT NULL,
    as_of             timestamptz NOT NULL,
    model             text NOT NULL,
    pipeline_version  integer NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    decided_by        text,
    decided_at        timestamptz,
    CHECK ((kind = 'edit') = (leaf_id IS NOT NULL) AND (leaf_id IS NULL) = (leaf_hash IS NULL)),
    CHECK (kind <> 'edit' OR status <> 'applied' OR topic_id IS NOT NULL)
);
CREATE INDEX ros_wiki_patches_leaf ON ros_wiki_patches (leaf_id) WHERE leaf_id IS NOT NULL;
CREATE INDEX ros_wiki_patches_topic ON ros_wiki_patches (topic_id, status);
CREATE INDEX ros_wiki_patches_other ON ros_wiki_patches (other_id) WHERE other_id IS NOT NULL;
CREATE INDEX ros_wiki_patches_open ON ros_wiki_patches (seq) WHERE status = 'proposed';
-- What was refused once is looked for in every new proposal.
CREATE INDEX ros_wiki_patches_refused ON ros_wiki_patches USING gin (claim_keys)
    WHERE status IN ('rejected', 'reverted');
CREATE INDEX ros_wiki_patches_refused_whole ON ros_wiki_patches (content_hash) WHERE status IN ('rejected', 'reverted');

-- Every version of every page.
CREATE TABLE ros_wiki_revisions (
    topic_id    uuid NOT NULL REFERENCES ros_wiki_topics (id),
    revision    integer NOT NULL CHECK (revision > 0),
    title       text NOT NULL,
    page        jsonb NOT NULL,
    -- What made it: an applied or reverted patch, a re-mining, a merge.
    cause       text NOT NULL,
    patch_id    uuid REFERENCES ros_wiki_patches (id),
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, revision)
);
CREATE INDEX ros_wiki_revisions_recent ON ros_wiki_revisions (created_at DESC, topic_id, revision);

-- Which leaves say each sentence of a page as it is now; a leaf's messages stand in ros_summary_sources.
CREATE TABLE ros_wiki_citations (
    topic_id   uuid NOT NULL REFERENCES ros_wiki_topics (id),
    claim_key  uuid NOT NULL,
    leaf_id    uuid NOT NULL REFERENCES ros_summaries (id),
    PRIMARY KEY (topic_id, claim_key, leaf_id)
);
CREATE INDEX ros_wiki_citations_leaf ON ros_wiki_citations (leaf_id);

CREATE TABLE ros_wiki_redirects (
    from_slug   text PRIMARY KEY,
    topic_id    uuid NOT NULL REFERENCES ros_wiki_topics (id),
    patch_id    uuid NOT NULL REFERENCES ros_wiki_patches (id),
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ros_wiki_redirects_topic ON ros_wiki_redirects (topic_id);

-- Which leaves were mined, from which text, by which version, and what came of it.
CREATE TABLE ros_wiki_extractions (
    leaf_id           uuid PRIMARY KEY REFERENCES ros_summaries (id),
    text_hash         uuid NOT NULL,
    pipeline_version  integer NOT NULL,
    model             text NOT NULL,
    -- none: there was nothing to keep. untrusted: its text is no longer trusted, and what it said was taken back.
    outcome           text NOT NULL CHECK (outcome IN ('patches', 'none', 'untrusted')),
    patches           integer NOT NULL DEFAULT 0 CHECK (patches >= 0),
    -- The names that the leaf speaks of, folded and as they are spelt: what is often spoken of may want a page.
    mention_keys      text[] NOT NULL DEFAULT '{}',
    mentions          text[] NOT NULL DEFAULT '{}' CHECK (cardinality(mentions) = cardinality(mention_keys)),
    extracted_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ros_wiki_extractions_hashes ON ros_wiki_extractions (leaf_id, text_hash);
CREATE INDEX ros_wiki_extractions_version ON ros_wiki_extractions (pipeline_version) INCLUDE (leaf_id);

-- Leaves that were not mined as they are now. The two indexes alone tell which, so that it costs what is left and not
-- what is stored. One that lost its trust is looked at once more, to take back what it said.
CREATE VIEW ros_unmined_leaves AS
SELECT s.id, s.seq, s.conversation_id, s.day, s.latest_at, s.text_hash, x.leaf_id IS NULL AS new
FROM (
    SELECT s.id FROM ros_summaries AS s
    WHERE s.kind = 'leaf' AND NOT EXISTS (
        SELECT 1 FROM ros_wiki_extractions AS x WHERE x.leaf_id = s.id AND x.text_hash = s.text_hash)
    OFFSET 0
) AS found
JOIN ros_summaries AS s ON s.id = found.id
LEFT JOIN ros_wiki_extractions AS x ON x.leaf_id = s.id
WHERE (ros_is_trusted(s) OR x.outcome = 'patches')
  AND NOT EXISTS (
      SELECT 1 FROM ros_conversations AS c
      WHERE c.id = s.conversation_id AND ros_is_noise(c.session_key, c.settings));

CREATE VIEW ros_pending_wiki_patches AS
SELECT u.id, u.seq, u.conversation_id, u.day, u.latest_at, u.text_hash, u.new FROM ros_unmined_leaves AS u
WHERE NOT ros_is_blocked('wiki_patches', 'service')
  AND NOT EXISTS (SELECT 1 FROM ros_blocked_items AS b WHERE b.stage = 'wiki_patches' AND b.item = u.id::text);

-- Leaves that an older version mined, as they are now. Mined again once, when somebody asks or the sensor is on.
CREATE VIEW ros_stale_wiki_patches AS
SELECT s.id, s.seq, s.conversation_id, s.day, s.latest_at, s.text_hash,
       ros_is_blocked('wiki_patches', 'service') OR mine.item IS NOT NULL AS waits
FROM ros_refinement_versions AS v
JOIN ros_wiki_extractions AS x ON x.pipeline_version < v.version
JOIN ros_summaries AS s ON s.id = x.leaf_id AND s.text_hash = x.text_hash
LEFT JOIN ros_blocked_items AS mine ON mine.stage = 'wiki_patches' AND mine.item = s.id::text
WHERE v.stage = 'wiki_patches'
  AND x.outcome <> 'untrusted'
  AND NOT EXISTS (
      SELECT 1 FROM ros_conversations AS c
      WHERE c.id = s.conversation_id AND ros_is_noise(c.session_key, c.settings));

CREATE VIEW ros_pending_wiki_embeddings AS
SELECT t.id, t.updated_at::date AS day, t.text_hash, f.id AS model_id
FROM ros_wiki_topics AS t
CROSS JOIN (SELECT id FROM ros_embedding_models WHERE filling) AS f
WHERE t.status = 'live'
  AND NOT EXISTS (
      SELECT 1 FROM ros_embeddings AS e
      WHERE e.model_id = (SELECT id FROM ros_embedding_models WHERE filling) AND e.owner_kind = 'topic'
        AND e.owner_id = t.id AND e.content_hash = t.text_hash)
  AND NOT ros_is_blocked('wiki_embeddings', 'service')
  AND NOT EXISTS (SELECT 1 FROM ros_blocked_items AS b WHERE b.stage = 'wiki_embeddings' AND b.item = t.id::text);

-- One more part of both views, whatever parts they have.
DO $$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE VIEW ros_pending_days AS %s UNION ALL '
        'SELECT ''wiki_patches'', day, false, count(*) FROM ros_pending_wiki_patches GROUP BY day',
        rtrim(pg_get_viewdef('ros_pending_days'), '; '));
    EXECUTE format(
        'CREATE OR REPLACE VIEW ros_stale_days AS %s UNION ALL '
        'SELECT ''wiki_patches'', day, count(*), count(*) FILTER (WHERE NOT waits) '
        'FROM ros_stale_wiki_patches GROUP BY day',
        rtrim(pg_get_viewdef('ros_stale_days'), '; '));
END
$$;

-- A patch whose words change (a redaction) leaves its page to be made again.
CREATE FUNCTION ros_wiki_patches_outdate_page() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ros_wiki_topics SET page_version = 0 WHERE id = NEW.topic_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER ros_wiki_patches_outdate_page AFTER UPDATE OF payload ON ros_wiki_patches
    FOR EACH ROW WHEN (OLD.payload IS DISTINCT FROM NEW.payload) EXECUTE FUNCTION ros_wiki_patches_outdate_page();

-- A page without the sentences that one leaf alone says.
CREATE FUNCTION ros_wiki_without_leaf(page jsonb, leaf uuid) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT page || jsonb_build_object(
        'sections', (
            SELECT coalesce(jsonb_object_agg(n.key, (
                SELECT coalesce(jsonb_agg(b.value ORDER BY b.ordinality), '[]')
                FROM jsonb_array_elements(n.value) WITH ORDINALITY AS b
                WHERE b.value -> 'leaves' <> jsonb_build_array(leaf))), '{}')
            FROM jsonb_each(page -> 'sections') AS n),
        'history', (
            SELECT coalesce(jsonb_agg(b.value ORDER BY b.ordinality), '[]')
            FROM jsonb_array_elements(page -> 'history') WITH ORDINALITY AS b
            WHERE b.value -> 'leaves' <> jsonb_build_array(leaf)))
$$;

-- Takes what a leaf said out of every patch, page and version: its words were taken out of the memory. The pages are made
-- again of what is left.
CREATE FUNCTION ros_wiki_forget_leaf(gone uuid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    pages uuid[];
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('ros_wiki'));
    SELECT coalesce(array_agg(DISTINCT id), '{}') INTO pages FROM (
        SELECT topic_id AS id FROM ros_wiki_patches WHERE leaf_id = gone AND topic_id IS NOT NULL
        UNION SELECT topic_id FROM ros_wiki_citations WHERE leaf_id = gone) AS found;
    UPDATE ros_wiki_patches
    SET payload = '{}', claim_keys = '{}', title = '[redacted]', reason = '[redacted]', status = 'replaced'
    WHERE leaf_id = gone;
    UPDATE ros_wiki_revisions SET page = ros_wiki_without_leaf(page, gone) WHERE topic_id = ANY(pages);
    UPDATE ros_wiki_topics
    SET page = ros_wiki_without_leaf(page, gone), search_text = title, entities = '{}', keys = '{}', page_version = 0
    WHERE id = ANY(pages) AND page <> '{}';
    DELETE FROM ros_wiki_citations WHERE leaf_id = gone;
    DELETE FROM ros_embeddings WHERE owner_kind = 'topic' AND owner_id = ANY(pages);
    UPDATE ros_wiki_extractions SET mention_keys = '{}', mentions = '{}' WHERE leaf_id = gone;
END
$$;
