-- Where a page of vectors lands before it is merged; empty again after each transaction.
CREATE TEMP TABLE IF NOT EXISTS ros_embedding_incoming (
    owner_id      uuid NOT NULL,
    chunk         integer NOT NULL,
    content_hash  uuid NOT NULL,
    char_start    integer NOT NULL,
    char_end      integer NOT NULL,
    embedding     halfvec NOT NULL
) ON COMMIT DELETE ROWS
