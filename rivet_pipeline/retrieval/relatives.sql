-- Which of some summaries were made from which of some messages (`below` positive) or summaries (`below` negative).
SELECT s.seq AS above, m.seq AS below
FROM ros_summaries AS s
JOIN ros_summary_sources AS o ON o.summary_id = s.id
JOIN ros_messages AS m ON m.id = o.message_id
WHERE s.seq = ANY (%(summaries)s::bigint[]) AND m.seq = ANY (%(messages)s::bigint[])
UNION ALL
SELECT p.seq, -c.seq
FROM ros_summaries AS c JOIN ros_summaries AS p ON p.id = c.parent_id
WHERE c.seq = ANY (%(summaries)s::bigint[]) AND p.seq = ANY (%(summaries)s::bigint[])
