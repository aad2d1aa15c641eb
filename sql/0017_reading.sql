-- What listings, figures and the pending views read at a million messages without walking over them.

-- How many messages each conversation has, by agent, role, tool and kind. Messages are never deleted and none of these
-- changes, so adding up what is inserted stays exact; whoever writes to a conversation holds its lock, so that no two
-- writers meet in a row here.
CREATE TABLE ros_message_counts (
    conversation_id  uuid NOT NULL REFERENCES ros_conversations (id),
    agent            text NOT NULL,
    role             text NOT NULL,
    -- '' without a tool; a longer name is cut, because an index entry has its bounds.
    tool_name        text NOT NULL CHECK (length(tool_name) <= 200),
    -- What a person or an agent said, what restates another row, and the rest.
    kind             text NOT NULL CHECK (kind IN ('speech', 'replay', 'other')),
    messages         bigint NOT NULL CHECK (messages > 0),
    PRIMARY KEY (conversation_id, agent, role, tool_name, kind)
) WITH (fillfactor = 70);

CREATE FUNCTION ros_message_class(metadata jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE coalesce(metadata ->> 'kind', 'speech')
           WHEN 'speech' THEN 'speech' WHEN 'replay' THEN 'replay' ELSE 'other' END
$$;

CREATE FUNCTION ros_count_messages() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ros_message_counts AS c (conversation_id, agent, role, tool_name, kind, messages)
    SELECT conversation_id, agent, role, left(coalesce(tool_name, ''), 200), ros_message_class(metadata), count(*)
    FROM added GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
    ON CONFLICT (conversation_id, agent, role, tool_name, kind) DO UPDATE SET messages = c.messages + excluded.messages;
    RETURN NULL;
END
$$;
CREATE TRIGGER ros_messages_count AFTER INSERT ON ros_messages
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ros_count_messages();

INSERT INTO ros_message_counts (conversation_id, agent, role, tool_name, kind, messages)
SELECT conversation_id, agent, role, left(coalesce(tool_name, ''), 200), ros_message_class(metadata), count(*)
FROM ros_messages GROUP BY 1, 2, 3, 4, 5;

-- The few rows that hold nothing to embed: all others are what coverage is measured against.
CREATE INDEX ros_messages_blank ON ros_messages (seq)
    WHERE NOT (btrim(content) <> '' OR btrim(coalesce(tool_result, '')) <> '');

-- Listings of what is rare: one tool's calls, and what a system said.
CREATE INDEX ros_messages_tool ON ros_messages (left(tool_name, 200), created_at DESC, seq DESC)
    WHERE tool_name IS NOT NULL;
CREATE INDEX ros_messages_system ON ros_messages (created_at DESC, seq DESC) WHERE role = 'system';

-- One entry for each embedded text, many to a page.
CREATE INDEX ros_embeddings_first ON ros_embeddings (model_id, owner_kind) WHERE chunk = 0;

-- Figures of the summaries from the index alone.
CREATE INDEX ros_summaries_written ON ros_summaries (kind, created_at) INCLUDE (grounding, coverage);

-- The pending views are asked every few seconds. They compare every conversation's revision with its marks, every
-- summary with its vector, and count every summary without a parent: each from an index alone now, where they read a
-- row of the table, in no order, for each of them.
ALTER TABLE ros_stage_marks
    DROP CONSTRAINT ros_stage_marks_pkey,
    ADD CONSTRAINT ros_stage_marks_pkey PRIMARY KEY (stage, conversation_id) INCLUDE (revision);
CREATE INDEX ros_summaries_hash ON ros_summaries (id) INCLUDE (text_hash, conversation_id, seq);
CREATE INDEX ros_embeddings_of_summaries ON ros_embeddings (model_id, owner_id) INCLUDE (content_hash)
    WHERE owner_kind = 'summary';
DROP INDEX ros_summaries_orphans;
CREATE INDEX ros_summaries_orphans ON ros_summaries (conversation_id, kind) INCLUDE (grounding)
    WHERE parent_id IS NULL;
