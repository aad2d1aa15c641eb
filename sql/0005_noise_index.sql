-- Every search leaves noise sessions out: their ids come from this index instead of a walk over all conversations.
CREATE INDEX ros_conversations_noise ON ros_conversations (id) WHERE ros_is_noise(session_key, settings);
