-- Conversations and messages: the transcript. A message row is written once.

-- One shared predicate for what is never refined: heartbeats, and sessions marked as noise when they were captured
-- (the pipeline's own model traffic among them).
CREATE FUNCTION ros_is_noise(session_key text, settings jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT session_key LIKE 'heartbeat:%' OR coalesce(settings ->> 'noise', 'false') = 'true' $$;

CREATE TABLE ros_conversations (
    id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    session_key   text NOT NULL CHECK (session_key <> ''),
    agent         text NOT NULL CHECK (agent <> '' AND length(agent) <= 200),
    channel       text NOT NULL DEFAULT 'unknown',
    channel_id    text,
    bot_identity  text,
    title         text,
    task_id       uuid,
    settings      jsonb NOT NULL DEFAULT '{}',
    active        boolean NOT NULL DEFAULT true,
    -- The UTC day on which the conversation began: its partition, for ever.
    day           date NOT NULL,
    -- Counts the writes that touched the conversation's messages; a stage mark of the same revision has seen them all.
    revision      bigint NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    -- The time of the last message (never in the future): what "idle" is measured from.
    updated_at    timestamptz NOT NULL DEFAULT now(),
    -- A btree entry may hold 2,704 bytes and a session key may be longer, so identity is kept on its hash.
    session_hash  uuid NOT NULL GENERATED ALWAYS AS (md5(session_key)::uuid) STORED,
    UNIQUE (session_hash, agent)
);
CREATE INDEX ros_conversations_day ON ros_conversations (day);
CREATE INDEX ros_conversations_updated ON ros_conversations (updated_at DESC, id);

CREATE FUNCTION ros_conversation_identity_is_fixed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ros_conversations %: session_key, agent, day and created_at never change', OLD.id
        USING ERRCODE = 'restrict_violation',
              HINT = 'A conversation belongs for ever to the day it began; capture into a new session key instead.';
END
$$;
CREATE TRIGGER ros_conversations_identity BEFORE UPDATE ON ros_conversations
    FOR EACH ROW
    WHEN (OLD.session_key IS DISTINCT FROM NEW.session_key OR OLD.agent IS DISTINCT FROM NEW.agent
          OR OLD.day IS DISTINCT FROM NEW.day OR OLD.created_at IS DISTINCT FROM NEW.created_at)
    EXECUTE FUNCTION ros_conversation_identity_is_fixed();

CREATE TABLE ros_messages (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Makes the order total: every listing and batch is ordered by (created_at, seq).
    seq              bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    conversation_id  uuid NOT NULL REFERENCES ros_conversations (id),
    event_id         text NOT NULL CHECK (event_id <> '' AND length(event_id) <= 200),
    agent            text NOT NULL,
    channel          text NOT NULL,
    role             text NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    content          text NOT NULL DEFAULT '',
    tool_name        text,
    tool_args        jsonb,
    tool_result      text,
    metadata         jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    created_at       timestamptz NOT NULL DEFAULT now(),
    captured_at      timestamptz NOT NULL DEFAULT now(),
    -- What is embedded, hashed: another text means another hash, and so a new embedding.
    text_hash        uuid NOT NULL GENERATED ALWAYS AS (md5(content || E'\n' || coalesce(tool_result, ''))::uuid) STORED,
    content_tsv      tsvector NOT NULL GENERATED ALWAYS AS (ros_analyse(content, tool_result)) STORED,
    UNIQUE (conversation_id, event_id)
);
CREATE UNIQUE INDEX ros_messages_seq ON ros_messages (seq);
CREATE INDEX ros_messages_conversation ON ros_messages (conversation_id, created_at, seq);
CREATE INDEX ros_messages_created ON ros_messages (created_at DESC, seq DESC);
CREATE INDEX ros_messages_agent ON ros_messages (agent, created_at DESC, seq DESC);
CREATE INDEX ros_messages_tsv ON ros_messages USING gin (content_tsv);

-- Write once. Two fills are let through, each with what it adds to the metadata: a tool result that came late
-- (NULL to a value) and the text made for a tool call without one ('' to a text). Nothing may leave the metadata.
CREATE FUNCTION ros_messages_write_once() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    filled boolean := (OLD.tool_result IS NULL AND NEW.tool_result IS NOT NULL)
                   OR (OLD.content = '' AND NEW.content <> '');
BEGIN
    IF TG_OP <> 'UPDATE' THEN
        RAISE EXCEPTION 'ros_messages: % refused, a captured message is kept for ever', TG_OP
            USING ERRCODE = 'restrict_violation', HINT = 'Nothing in the pipeline needs to remove a message.';
    END IF;
    IF filled
       AND (OLD.tool_result IS NULL OR NEW.tool_result IS NOT DISTINCT FROM OLD.tool_result)
       AND (OLD.content = '' OR NEW.content = OLD.content)
       AND ROW(NEW.id, NEW.seq, NEW.conversation_id, NEW.event_id, NEW.agent, NEW.channel, NEW.role, NEW.tool_name,
               NEW.tool_args, NEW.created_at, NEW.captured_at)
           IS NOT DISTINCT FROM
           ROW(OLD.id, OLD.seq, OLD.conversation_id, OLD.event_id, OLD.agent, OLD.channel, OLD.role, OLD.tool_name,
               OLD.tool_args, OLD.created_at, OLD.captured_at)
       AND NEW.metadata @> (OLD.metadata - 'pending_result')
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'ros_messages %: a captured message is written once', OLD.id
        USING ERRCODE = 'restrict_violation',
              HINT = 'Only an empty content or a missing tool_result may be filled, once; metadata may only grow with it.';
END
$$;
CREATE TRIGGER ros_messages_keep_words BEFORE UPDATE OR DELETE ON ros_messages
    FOR EACH ROW EXECUTE FUNCTION ros_messages_write_once();
CREATE TRIGGER ros_messages_keep_table BEFORE TRUNCATE ON ros_messages
    FOR EACH STATEMENT EXECUTE FUNCTION ros_messages_write_once();

-- What refinement reads: rows that say something, and neither injected context, progress nor a replay of other rows.
CREATE FUNCTION ros_is_refined(content text, tool_name text, tool_result text, metadata jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (btrim(content) <> '' OR tool_name IS NOT NULL OR btrim(coalesce(tool_result, '')) <> '')
       AND coalesce(metadata ->> 'kind', 'speech') NOT IN ('injected', 'progress', 'replay')
$$;
