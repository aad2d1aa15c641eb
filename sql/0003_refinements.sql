-- What is derived from the transcript. All of it can be made again from ros_messages.

CREATE TABLE ros_summaries (
    id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    seq               bigint NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    conversation_id   uuid NOT NULL REFERENCES ros_conversations (id),
    parent_id         uuid REFERENCES ros_summaries (id),
    kind              text NOT NULL CHECK (kind IN ('leaf', 'branch', 'root')),
    depth             integer NOT NULL GENERATED ALWAYS AS (CASE kind WHEN 'leaf' THEN 0 WHEN 'branch' THEN 1 ELSE 2 END) STORED,
    content           text NOT NULL CHECK (btrim(content) <> ''),
    message_count     integer NOT NULL CHECK (message_count > 0),
    earliest_at       timestamptz NOT NULL,
    latest_at         timestamptz NOT NULL CHECK (latest_at >= earliest_at),
    agents            text[] NOT NULL DEFAULT '{}',
    model             text NOT NULL,
    pipeline_version  integer NOT NULL,
    -- What it was made from: the ids and texts below it, the prompt's version, the model.
    input_hash        text NOT NULL,
    -- The share of its identifiers that its sources contain, 0 to 1, and those they do not.
    grounding         real CHECK (grounding BETWEEN 0 AND 1),
    ungrounded        text[] NOT NULL DEFAULT '{}',
    metadata          jsonb NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT now(),
    text_hash         uuid NOT NULL GENERATED ALWAYS AS (md5(content)::uuid) STORED,
    content_tsv       tsvector NOT NULL GENERATED ALWAYS AS (ros_analyse(content, NULL)) STORED
);
CREATE INDEX ros_summaries_conversation ON ros_summaries (conversation_id, kind, earliest_at, seq);
CREATE INDEX ros_summaries_parent ON ros_summaries (parent_id);
CREATE INDEX ros_summaries_orphans ON ros_summaries (conversation_id, kind) WHERE parent_id IS NULL;
CREATE INDEX ros_summaries_tsv ON ros_summaries USING gin (content_tsv);

CREATE TABLE ros_summary_sources (
    summary_id  uuid NOT NULL REFERENCES ros_summaries (id),
    message_id  uuid NOT NULL REFERENCES ros_messages (id),
    ordinal     integer NOT NULL CHECK (ordinal >= 0),
    PRIMARY KEY (summary_id, message_id),
    -- Each message stands in one leaf, whoever else tries at the same time.
    UNIQUE (message_id)
);

-- A summary that is made again leaves its older text here.
CREATE TABLE ros_summary_revisions (
    summary_id        uuid NOT NULL REFERENCES ros_summaries (id),
    revision          integer NOT NULL,
    content           text NOT NULL,
    model             text NOT NULL,
    pipeline_version  integer NOT NULL,
    input_hash        text NOT NULL,
    grounding         real,
    created_at        timestamptz NOT NULL,
    replaced_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (summary_id, revision)
);

CREATE TABLE ros_embedding_models (
    id          integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name        text NOT NULL UNIQUE CHECK (length(name) <= 300),
    dimensions  integer NOT NULL CHECK (dimensions BETWEEN 1 AND 4000),
    -- The model that new texts are embedded with, and the one that answers queries. They differ while a new model
    -- is being filled beside the old one.
    filling     boolean NOT NULL DEFAULT false,
    serving     boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX ros_embedding_models_filling ON ros_embedding_models (filling) WHERE filling;
CREATE UNIQUE INDEX ros_embedding_models_serving ON ros_embedding_models (serving) WHERE serving;

CREATE TABLE ros_embeddings (
    model_id         integer NOT NULL REFERENCES ros_embedding_models (id),
    owner_kind       text NOT NULL CHECK (owner_kind IN ('message', 'summary', 'topic')),
    owner_id         uuid NOT NULL,
    chunk            integer NOT NULL CHECK (chunk >= 0),
    -- The owner's text_hash when this was made.
    content_hash     uuid NOT NULL,
    -- The part of the composed text this vector stands for, in characters.
    char_start       integer NOT NULL,
    char_end         integer NOT NULL,
    embedding        halfvec NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (model_id, owner_kind, owner_id, chunk)
);

-- Gives a model's vectors the index that nearest-neighbour search uses, unless it is there.
CREATE FUNCTION ros_index_embedding_model(indexed_model_id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    width integer := (SELECT dimensions FROM ros_embedding_models WHERE id = indexed_model_id);
BEGIN
    IF to_regclass(format('ros_embeddings_hnsw_%s', indexed_model_id)) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('ros_index_embedding_model'));
        EXECUTE format(
            'CREATE INDEX IF NOT EXISTS ros_embeddings_hnsw_%s ON ros_embeddings USING hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) WHERE model_id = %s',
            indexed_model_id, width, indexed_model_id);
    END IF;
END
$$;

-- Registers an embedding model, gives it an index of its own and makes it the one being filled. The first model also
-- serves. A name that comes back with another width is refused: its old vectors would be compared with new ones.
CREATE FUNCTION ros_register_embedding_model(model_name text, model_dimensions integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    model ros_embedding_models;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('ros_register_embedding_model'));
    SELECT * INTO model FROM ros_embedding_models WHERE name = model_name;
    IF model.id IS NOT NULL AND model.dimensions <> model_dimensions THEN
        RAISE EXCEPTION 'embedding model % answers % dimensions, its stored vectors have %',
            model_name, model_dimensions, model.dimensions
            USING ERRCODE = 'data_exception', HINT = 'Give the new model a name of its own (RIVETOS_EMBED_MODEL).';
    END IF;
    IF model.id IS NULL THEN
        INSERT INTO ros_embedding_models (name, dimensions, serving)
        VALUES (model_name, model_dimensions, NOT EXISTS (SELECT 1 FROM ros_embedding_models WHERE serving))
        RETURNING * INTO model;
        PERFORM ros_index_embedding_model(model.id);
    END IF;
    IF NOT model.filling THEN
        -- What the former model has seen, this one has not.
        DELETE FROM ros_stage_marks WHERE stage = 'message_embeddings';
        UPDATE ros_embedding_models SET filling = false WHERE filling;
        UPDATE ros_embedding_models SET filling = true WHERE id = model.id;
    END IF;
    RETURN model.id;
END
$$;

-- Which accesses a row has had: written behind, in batches, never on the search path.
CREATE TABLE ros_access (
    kind              text NOT NULL CHECK (kind IN ('message', 'summary', 'topic')),
    id                uuid NOT NULL,
    access_count      integer NOT NULL DEFAULT 0 CHECK (access_count >= 0),
    last_accessed_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, id)
);

-- The one ledger of what failed, for every stage; a success clears the row.
CREATE TABLE ros_failures (
    stage            text NOT NULL,
    item             text NOT NULL CHECK (length(item) <= 200),
    cause            text NOT NULL CHECK (cause IN ('transient', 'content', 'permanent')),
    error            text NOT NULL,
    attempts         integer NOT NULL DEFAULT 1,
    day              date,
    first_failed_at  timestamptz NOT NULL DEFAULT now(),
    last_failed_at   timestamptz NOT NULL DEFAULT now(),
    -- NULL: not tried again by itself.
    next_attempt_at  timestamptz,
    PRIMARY KEY (stage, item)
);

-- What a stage has seen: everything of the conversation up to that revision is done (or can never become due).
-- Only a shortcut for the pending views: a lost mark costs one more look, never a row.
CREATE TABLE ros_stage_marks (
    stage            text NOT NULL,
    conversation_id  uuid NOT NULL REFERENCES ros_conversations (id),
    revision         bigint NOT NULL,
    marked_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stage, conversation_id)
);

-- BM25's statistics over messages and summaries together.
CREATE TABLE ros_lexicon (
    term  text PRIMARY KEY,
    df    bigint NOT NULL
);
CREATE TABLE ros_corpus (
    singleton         boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    documents         bigint NOT NULL DEFAULT 0,
    total_length      bigint NOT NULL DEFAULT 0,
    last_message_seq  bigint NOT NULL DEFAULT 0,
    last_summary_seq  bigint NOT NULL DEFAULT 0,
    refreshed_at      timestamptz
);
INSERT INTO ros_corpus DEFAULT VALUES;

-- Files read by import, so that a second run starts where the last one committed.
CREATE TABLE ros_import_files (
    path_hash   uuid PRIMARY KEY,
    path        text NOT NULL,
    size        bigint NOT NULL,
    mtime_ns    bigint NOT NULL,
    counts      jsonb NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT now()
);
