-- Of the given messages within the filters those that hold a text in small letters and are longer than `ros_analyse`
-- looks, newest first, as far as the bytes that may be read go; and how many were read and left, and the bytes read.
WITH long AS MATERIALIZED (
    SELECT m.seq, sum(octet_length(m.content) + coalesce(octet_length(m.tool_result), 0))
                      OVER (ORDER BY m.created_at DESC, m.seq DESC) AS bytes
    FROM ros_messages AS m
    -- The length in bytes of a stored text is known without reading it.
    WHERE m.seq = ANY (%(messages)s::bigint[])
      AND (octet_length(m.content) + coalesce(octet_length(m.tool_result), 0) > %(longest)s
           OR octet_length(m.tool_result) > %(longest_result)s)
      AND {filter}
), chosen AS MATERIALIZED (
    -- One at least.
    SELECT seq, bytes, bytes <= greatest(%(bytes)s, min(bytes) OVER ()) AS is_read FROM long
)
SELECT count(*) FILTER (WHERE is_read) AS read, count(*) FILTER (WHERE NOT is_read) AS unread,
       coalesce(max(bytes) FILTER (WHERE is_read), 0)::bigint AS bytes,
       ARRAY(SELECT m.seq FROM chosen AS c JOIN ros_messages AS m ON m.seq = c.seq
             WHERE c.is_read AND (position(%(text)s::text IN lower(m.content)) > 0
                                  OR position(%(text)s::text IN lower(coalesce(m.tool_result, ''))) > 0)) AS seqs
FROM chosen
