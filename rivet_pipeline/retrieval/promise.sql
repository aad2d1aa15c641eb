-- What a row promises by text and freshness alone, as `scoring.py` has it: both parts with their weights, and less for a
-- row that hardly holds what was asked for. An age is cut at 10,000 days because exp() raises on underflow.
(%(faint_share)s::float8 + (1 - %(faint_share)s::float8) * least(1, {text} / %(relevant_from)s::float8))
* (%(text_weight)s::float8 * {text} + %(temporal_weight)s::float8
   * least(1, exp(-%(decay)s::float8 * least(10000, greatest(0, extract(
                      epoch FROM %(now)s::timestamptz - {at} - (greatest(least(a.last_accessed_at, %(now)s::timestamptz), {at}) - {at})
                           * (least(coalesce(a.access_count, 0), %(max_accesses)s::integer)
                              / %(max_accesses)s::float8))::float8 / 86400)))
              * (1 + %(per_access)s::float8 * least(coalesce(a.access_count, 0), %(max_accesses)s::integer))))
