-- The text index: which rows hold a term and how often, in pieces that are written once, so that a search can score all
-- rows outside of the database. `retrieval/postings.py` has the formats, `retrieval/lexicon.py` writes them.

-- A number for each conversation, small enough to be kept for each row of the index.
ALTER TABLE ros_conversations ADD COLUMN number integer NOT NULL GENERATED ALWAYS AS IDENTITY;
CREATE UNIQUE INDEX ros_conversations_number ON ros_conversations (number);
CREATE INDEX ros_conversations_noise_number ON ros_conversations (number) WHERE ros_is_noise(session_key, settings);

-- The text that ros_analyse looks at, folded, when it may hold CJK characters, whose pairs are terms of their own; NULL
-- for plain ASCII, which is most of all.
CREATE FUNCTION ros_wide_text(content text, tool_result text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN octet_length(content) > length(content) OR octet_length(tool_result) > length(tool_result)
           THEN ros_fold(left(content, 200000) || E'\n' || left(coalesce(tool_result, ''), 60000)) END
$$;

-- A piece: up to 65,536 rows of one table in the order of their sequence numbers, and what a search must know of each.
-- Never changed: rows that come or change are put into new pieces, and several pieces are replaced by one. Of two pieces
-- that hold the same row the one with the higher id counts. `token` is that of no other piece, of no other database
-- either: what a process has read under it stays true.
CREATE TABLE ros_index_pieces (
    id         integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    token      uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    source     text NOT NULL CHECK (source IN ('message', 'summary')),
    documents  integer NOT NULL CHECK (documents BETWEEN 1 AND 65536),
    postings   bigint NOT NULL,
    -- The agents of its rows, which name them by their place here: a message's one, all of a summary's.
    agents     jsonb NOT NULL,
    columns    bytea NOT NULL,
    made_at    timestamptz NOT NULL DEFAULT now()
);
-- Nothing of it compresses, and what is compressed must be unpacked.
ALTER TABLE ros_index_pieces ALTER COLUMN columns SET STORAGE EXTERNAL;

-- The postings of a piece for the terms whose keys are from `first_key` to `last_key`; one such row is about a quarter of
-- a page. `terms` 0: of one term that most rows hold, a byte for every row.
CREATE TABLE ros_postings (
    piece_id   integer NOT NULL REFERENCES ros_index_pieces (id) ON DELETE CASCADE,
    first_key  bigint NOT NULL,
    last_key   bigint NOT NULL,
    terms      integer NOT NULL CHECK (terms >= 0),
    data       bytea NOT NULL,
    PRIMARY KEY (piece_id, first_key)
);
ALTER TABLE ros_postings ALTER COLUMN data SET STORAGE EXTERNAL;

-- Rows whose text may be another one than the index holds: a search reads these themselves. `change` is another number
-- for every change that ever was, so that none is taken for the one before it; `forget`: a secret was taken out, so that
-- the pieces that hold the former words are to be written anew.
CREATE SEQUENCE ros_index_change_numbers;
CREATE TABLE ros_index_changes (
    source  text NOT NULL CHECK (source IN ('message', 'summary')),
    seq     bigint NOT NULL,
    change  bigint NOT NULL DEFAULT nextval('ros_index_change_numbers'),
    forget  boolean NOT NULL DEFAULT false,
    PRIMARY KEY (source, seq)
);

CREATE FUNCTION ros_note_index_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ros_index_changes AS c (source, seq, forget)
    VALUES (
        TG_ARGV[0], NEW.seq,
        EXISTS (SELECT 1 FROM ros_redactions
                WHERE table_name = TG_TABLE_NAME AND row_key = NEW.id::text
                  AND transaction = pg_current_xact_id_if_assigned()))
    ON CONFLICT (source, seq) DO UPDATE SET change = excluded.change, forget = c.forget OR excluded.forget;
    RETURN NULL;
END
$$;
CREATE TRIGGER ros_messages_index_change AFTER UPDATE ON ros_messages
    FOR EACH ROW
    WHEN (OLD.text_hash <> NEW.text_hash OR OLD.metadata ->> 'kind' IS DISTINCT FROM NEW.metadata ->> 'kind')
    EXECUTE FUNCTION ros_note_index_change('message');
CREATE TRIGGER ros_summaries_index_change AFTER UPDATE ON ros_summaries
    FOR EACH ROW
    WHEN (ROW(OLD.text_hash, OLD.agents, OLD.earliest_at, OLD.latest_at)
          IS DISTINCT FROM ROW(NEW.text_hash, NEW.agents, NEW.earliest_at, NEW.latest_at))
    EXECUTE FUNCTION ros_note_index_change('summary');

-- Words are counted again together with what is indexed.
DELETE FROM ros_lexicon;
UPDATE ros_corpus SET documents = 0, total_length = 0, last_message_seq = 0, last_summary_seq = 0;
