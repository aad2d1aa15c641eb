-- How fresh a row is, as `scoring.temporal` has it. An age is cut at 10,000 days because exp() raises on underflow.
least(1, exp(-%(decay)s::float8 * least(10000, greatest(0, extract(
                 epoch FROM %(now)s::timestamptz - coalesce(a.last_accessed_at, {at}))::float8 / 86400)))
         * (1 + %(per_access)s::float8 * least(coalesce(a.access_count, 0), %(max_accesses)s::integer)))
