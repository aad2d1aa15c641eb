-- What was cut when it was captured live, and came whole later, out of the transcript itself. A message's row is written
-- once and stays as it is; search and refinement read the row, `memory_get_full` reads this first.
CREATE TABLE ros_full_texts (
    message_id   uuid PRIMARY KEY REFERENCES ros_messages (id),
    content      text,
    tool_args    jsonb,
    tool_result  text,
    captured_at  timestamptz NOT NULL DEFAULT now(),
    CHECK (content IS NOT NULL OR tool_args IS NOT NULL OR tool_result IS NOT NULL)
);

-- Who takes a secret out of a message does not leave it here.
CREATE FUNCTION ros_forget_full_text() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM ros_full_texts WHERE message_id = NEW.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER ros_messages_forget_full_text AFTER UPDATE ON ros_messages
    FOR EACH ROW WHEN (NEW.metadata ? 'redacted') EXECUTE FUNCTION ros_forget_full_text();
