-- Each write to a known conversation took a number for a new one, of which there are two thousand million, and what is
-- kept by number has room for the highest. Numbers go on behind the highest that a conversation has; nobody may be
-- writing one meanwhile.
LOCK TABLE ros_conversations IN SHARE ROW EXCLUSIVE MODE;
SELECT setval(pg_get_serial_sequence('ros_conversations', 'number'), coalesce(max(number), 1), max(number) IS NOT NULL)
FROM ros_conversations;
