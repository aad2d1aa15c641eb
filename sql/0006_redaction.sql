-- The one deliberate exception to immutability: taking a secret out of a stored message. It is possible only together
-- with a row of the log below, written in the same transaction, and it may touch the texts and nothing else.

CREATE TABLE ros_redactions (
    id           bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    -- One run of the command.
    run_id       uuid NOT NULL,
    table_name   text NOT NULL CHECK (table_name <> ''),
    -- The row's key, its parts joined by a space: a message's id.
    row_key      text NOT NULL CHECK (row_key <> ''),
    -- How the secret was named: by its shape, as a pattern or literally, or the whole message. Never the secret itself.
    rule         text NOT NULL CHECK (rule IN ('shapes', 'pattern', 'literal', 'whole')),
    -- How many of each kind were replaced.
    counts       jsonb NOT NULL CHECK (jsonb_typeof(counts) = 'object' AND counts <> '{}'),
    reason       text,
    os_user      text NOT NULL,
    -- These three are set by the trigger, whatever the writer says.
    db_user      text NOT NULL DEFAULT session_user,
    redacted_at  timestamptz NOT NULL DEFAULT now(),
    transaction  xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX ros_redactions_row ON ros_redactions (table_name, row_key);

CREATE FUNCTION ros_redactions_sign() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.db_user := session_user;
    NEW.redacted_at := now();
    NEW.transaction := pg_current_xact_id();
    RETURN NEW;
END
$$;
CREATE TRIGGER ros_redactions_sign BEFORE INSERT ON ros_redactions
    FOR EACH ROW EXECUTE FUNCTION ros_redactions_sign();

CREATE FUNCTION ros_redactions_keep() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ros_redactions: % refused, the log of redactions is only added to', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER ros_redactions_keep_rows BEFORE UPDATE OR DELETE ON ros_redactions
    FOR EACH ROW EXECUTE FUNCTION ros_redactions_keep();
CREATE TRIGGER ros_redactions_keep_table BEFORE TRUNCATE ON ros_redactions
    FOR EACH STATEMENT EXECUTE FUNCTION ros_redactions_keep();

-- Whether this very transaction has logged the redaction of a message. A transaction's number and its time together are
-- those of no other, also after the database was restored elsewhere.
CREATE FUNCTION ros_is_being_redacted(message_id uuid) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT 1 FROM ros_redactions
        WHERE table_name = 'ros_messages' AND row_key = message_id::text
          AND transaction = pg_current_xact_id_if_assigned() AND redacted_at = now())
$$;

-- As before, and one more exception: a logged redaction, which marks the row and leaves everything but its texts.
CREATE OR REPLACE FUNCTION ros_messages_write_once() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    filled boolean := (OLD.tool_result IS NULL AND NEW.tool_result IS NOT NULL)
                   OR (OLD.content = '' AND NEW.content <> '');
    same_identity boolean;
BEGIN
    IF TG_OP <> 'UPDATE' THEN
        RAISE EXCEPTION 'ros_messages: % refused, a captured message is kept for ever', TG_OP
            USING ERRCODE = 'restrict_violation', HINT = 'Nothing in the pipeline needs to remove a message.';
    END IF;
    same_identity :=
        ROW(NEW.id, NEW.seq, NEW.conversation_id, NEW.event_id, NEW.agent, NEW.channel, NEW.role, NEW.tool_name,
            NEW.created_at, NEW.captured_at)
        IS NOT DISTINCT FROM
        ROW(OLD.id, OLD.seq, OLD.conversation_id, OLD.event_id, OLD.agent, OLD.channel, OLD.role, OLD.tool_name,
            OLD.created_at, OLD.captured_at);
    IF filled
       AND same_identity
       AND (OLD.tool_result IS NULL OR NEW.tool_result IS NOT DISTINCT FROM OLD.tool_result)
       AND (OLD.content = '' OR NEW.content = OLD.content)
       AND NEW.tool_args IS NOT DISTINCT FROM OLD.tool_args
       AND NEW.metadata @> (OLD.metadata - 'pending_result')
    THEN
        RETURN NEW;
    END IF;
    IF same_identity
       AND (NEW.tool_args IS NULL) = (OLD.tool_args IS NULL)
       AND (NEW.tool_result IS NULL) = (OLD.tool_result IS NULL)
       AND NEW.metadata ? 'redacted'
       AND ros_is_being_redacted(OLD.id)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'ros_messages %: a captured message is written once', OLD.id
        USING ERRCODE = 'restrict_violation',
              HINT = 'Only an empty content or a missing tool_result may be filled, once; metadata may only grow with it. A secret is taken out with `rivet redact`.';
END
$$;

-- A query for one word of the index, exactly as it stands there.
CREATE FUNCTION ros_term_query(term text) RETURNS tsquery
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$ SELECT ('''' || replace(replace(term, '\', '\\'), '''', '''''') || '''')::tsquery $$;

-- Forgets the words of the lexicon that no text holds any more. Not for counting: the figures stay statistics.
CREATE FUNCTION ros_forget_terms(terms text[]) RETURNS void
LANGUAGE sql
AS $$
    DELETE FROM ros_lexicon AS l
    WHERE l.term = ANY(terms)
      AND NOT EXISTS (SELECT 1 FROM ros_messages AS m WHERE m.content_tsv @@ ros_term_query(l.term))
      AND NOT EXISTS (SELECT 1 FROM ros_summaries AS s WHERE s.content_tsv @@ ros_term_query(l.term))
$$;

-- Writes a redacted message: the log, the row, and what was made of its former text. The caller holds the session's lock
-- and has read the row with FOR UPDATE.
CREATE FUNCTION ros_redact_message(
    message_id uuid, new_content text, new_tool_args jsonb, new_tool_result text, new_metadata jsonb,
    by_run uuid, by_rule text, by_counts jsonb, by_reason text, by_os_user text
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    old ros_messages;
    new ros_messages;
BEGIN
    SELECT * INTO STRICT old FROM ros_messages WHERE id = message_id FOR UPDATE;
    INSERT INTO ros_redactions (run_id, table_name, row_key, rule, counts, reason, os_user)
    VALUES (by_run, 'ros_messages', message_id::text, by_rule, by_counts, by_reason, by_os_user);
    UPDATE ros_messages
    SET content = new_content, tool_args = new_tool_args, tool_result = new_tool_result, metadata = new_metadata
    WHERE id = message_id
    RETURNING * INTO new;
    DELETE FROM ros_embeddings WHERE owner_kind = 'message' AND owner_id = message_id;
    -- Another text deserves another try, whatever the former one failed of.
    DELETE FROM ros_failures WHERE stage = 'message_embeddings' AND item = message_id::text;
    -- The stages look again at a conversation that was written to.
    UPDATE ros_conversations SET revision = revision + 1 WHERE id = old.conversation_id;
    PERFORM ros_forget_terms(ARRAY(
        SELECT unnest(tsvector_to_array(old.content_tsv)) EXCEPT SELECT unnest(tsvector_to_array(new.content_tsv))));
END
$$;
REVOKE ALL ON FUNCTION ros_redact_message(uuid, text, jsonb, text, jsonb, uuid, text, jsonb, text, text) FROM PUBLIC;
