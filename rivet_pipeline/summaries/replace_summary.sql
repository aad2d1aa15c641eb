-- Keeps the older text and puts the new one in its place, if nobody else has done so meanwhile.
WITH older AS (
    SELECT * FROM ros_summaries WHERE id = %(id)s AND input_hash = %(old_hash)s AND text_hash = %(old_text)s FOR UPDATE
), kept AS (
    INSERT INTO ros_summary_revisions (summary_id, revision, content, model, pipeline_version, input_hash, grounding,
                                       created_at)
    SELECT o.id, 1 + (SELECT count(*) FROM ros_summary_revisions AS r WHERE r.summary_id = o.id), o.content, o.model,
           o.pipeline_version, o.input_hash, o.grounding,
           coalesce((o.metadata ->> 'redone_at')::timestamptz, o.created_at)
    FROM older AS o
)
UPDATE ros_summaries AS s
SET content = %(content)s, message_count = %(message_count)s, earliest_at = %(earliest_at)s, latest_at = %(latest_at)s,
    agents = %(agents)s, model = %(model)s, pipeline_version = %(version)s, input_hash = %(input_hash)s,
    grounding = %(grounding)s, ungrounded = %(ungrounded)s, coverage = %(coverage)s, uncovered = %(uncovered)s,
    metadata = %(metadata)s || jsonb_build_object('redone_at', now())
FROM older WHERE s.id = older.id
