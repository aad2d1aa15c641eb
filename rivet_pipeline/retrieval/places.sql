-- Where in each row the pattern stands first: the character and the one after its end, counted from 1; 0 for nowhere.
SELECT b.source, b.seq, regexp_instr(b.content, %(pattern)s, 1, 1, 0, 'i') AS content_from,
       regexp_instr(b.content, %(pattern)s, 1, 1, 1, 'i') AS content_to,
       coalesce(regexp_instr(b.tool_result, %(pattern)s, 1, 1, 0, 'i'), 0) AS result_from,
       coalesce(regexp_instr(b.tool_result, %(pattern)s, 1, 1, 1, 'i'), 0) AS result_to
FROM (
    SELECT 'message' AS source, seq, content, tool_result FROM ros_messages WHERE seq = ANY (%(messages)s::bigint[])
    UNION ALL
    SELECT 'summary', seq, content, NULL FROM ros_summaries WHERE seq = ANY (%(summaries)s::bigint[])
) AS b
