-- The rows that may hold the wanted terms, one for each wanted pair of piece and term, with NULLs where there is none. No
-- row at all: the piece is no longer there.
SELECT w.place, r.first_key, r.last_key, r.terms, r.data
FROM unnest(%(pieces)s::integer[], %(keys)s::bigint[]) WITH ORDINALITY AS w (piece_id, key, place)
JOIN ros_index_pieces AS p ON p.id = w.piece_id
LEFT JOIN LATERAL (
    SELECT * FROM ros_postings AS o WHERE o.piece_id = w.piece_id AND o.first_key <= w.key
    ORDER BY o.first_key DESC LIMIT 1
) AS r ON r.last_key >= w.key
