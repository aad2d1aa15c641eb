-- Codes of vectors have two bits for each dimension: which side of the centre a component lies on, as before, and behind
-- the bits of all dimensions, filled up to a whole byte, whether it lies far from it (`retrieval/vector_codes.py` says how
-- far). Twice as much in memory, and a third of the rows has to be compared with its vector.

-- Nothing is coded here: an upgrade would wait for it. The next refresh does, and until then the graph is walked.
DELETE FROM ros_vector_pieces;
UPDATE ros_embedding_models SET coded = false WHERE coded;
