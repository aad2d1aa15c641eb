-- Codes of the vectors, one bit for each dimension, in pieces that a search keeps in memory: it compares all rows within
-- its filters by them, and only the most promising ones with the vectors themselves. `retrieval/vector_pieces.py` writes
-- them.

-- The chunks of the owners whose `seq` is in [number * 16384, (number + 1) * 16384), by seq and chunk. `offsets` has for
-- each chunk what its owner's seq is above number * 16384, in two bytes, the low one first; `codes` has its bits, the
-- first dimension's the highest of its byte, set where the unit vector's component is above that of the model's centre.
-- Never changed: another version has another id and token. A range without vectors has no piece.
CREATE TABLE ros_vector_pieces (
    id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    model_id  integer NOT NULL REFERENCES ros_embedding_models (id) ON DELETE CASCADE,
    source    text NOT NULL CHECK (source IN ('message', 'summary')),
    number    integer NOT NULL CHECK (number >= 0),
    -- Names the content for a process that keeps it: numbers begin again when a store is restored.
    token     uuid NOT NULL DEFAULT gen_random_uuid(),
    rows      integer NOT NULL CHECK (rows > 0),
    offsets   bytea NOT NULL CHECK (octet_length(offsets) = 2 * rows),
    codes     bytea NOT NULL CHECK (octet_length(codes) % rows = 0),
    UNIQUE (model_id, source, number)
);
-- Nothing of them compresses well, and what is compressed must be unpacked.
ALTER TABLE ros_vector_pieces ALTER COLUMN offsets SET STORAGE EXTERNAL, ALTER COLUMN codes SET STORAGE EXTERNAL;

-- Whether every vector of the model stands in a piece or is named by a change; false until the pieces are made.
ALTER TABLE ros_embedding_models ADD COLUMN coded boolean NOT NULL DEFAULT false;
-- The mean of the model's unit vectors when it was coded, and of how many: bits around zero would tell nothing where all
-- components have one sign. With another centre all pieces are made anew.
ALTER TABLE ros_embedding_models ADD COLUMN centre halfvec, ADD COLUMN centred_on integer NOT NULL DEFAULT 0;

-- Owners whose vectors came, changed or went since their piece was written. An owner may stand here several times: where
-- two writers add rows that no rule compares, neither waits for the other.
CREATE TABLE ros_vector_changes (
    change    bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    model_id  integer NOT NULL,
    source    text NOT NULL CHECK (source IN ('message', 'summary')),
    owner_id  uuid NOT NULL
);
CREATE INDEX ros_vector_changes_waiting ON ros_vector_changes (model_id, source);

CREATE FUNCTION ros_note_vector_changes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ros_vector_changes (model_id, source, owner_id)
    SELECT DISTINCT model_id, owner_kind, owner_id FROM changed WHERE owner_kind IN ('message', 'summary');
    RETURN NULL;
END
$$;
-- Once a statement, and a trigger each, because one with such a table may have one event. An update never moves a vector
-- to another owner, so its new rows say it all.
CREATE TRIGGER ros_embeddings_inserted AFTER INSERT ON ros_embeddings
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION ros_note_vector_changes();
CREATE TRIGGER ros_embeddings_updated AFTER UPDATE ON ros_embeddings
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION ros_note_vector_changes();
CREATE TRIGGER ros_embeddings_deleted AFTER DELETE ON ros_embeddings
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION ros_note_vector_changes();

-- Nothing is coded here: an upgrade would wait for it. The next refresh codes the model that serves.
