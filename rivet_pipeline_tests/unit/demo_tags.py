"""The tags that a person would expect of the demo sessions, read off them by eye, by the day of the session.

`expected`: each line is one subject, with the spellings that name it. `also`: true of the session, but nobody's first
thought: it counts neither way for what was found, and is no mistake.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """The gold tags of one session."""

    project: str
    expected: tuple[tuple[str, ...], ...]
    also: tuple[str, ...] = ()


GOLD: dict[str, Expected] = {
    "2026-09-01": Expected(
        "tidewatch",
        (
            ("tide-gauge-importer", "gauge-importer", "importer", "data-import"),
            ("house-rules", "conventions", "coding-rules", "dependencies"),
        ),
        ("tide-gauges", "time-zones", "firmware", "ports", "uv", "data-import", "tide-gauge-importer"),
    ),
    "2026-09-03": Expected(
        "tidewatch",
        (
            ("caching", "cache"),
            ("redis",),
            ("performance", "latency"),
            ("predictions", "prediction-endpoint", "tide-predictions"),
        ),
        ("quay-displays", "testing"),
    ),
    "2026-09-04": Expected(
        "kelpie",
        (("mtu",), ("wireguard", "vpn"), ("push", "kelpie-push", "uploads", "photos", "large-photos")),
        ("retries", "networking", "caddy", "webdav"),
    ),
    "2026-09-08": Expected(
        "brine",
        (("backup", "backups", "restic", "restic-backup", "nightly-restic-backup"), ("systemd", "systemd-timers")),
        ("cron", "scheduling", "notifications", "alerting", "ntfy", "restic", "nightly-restic-backup"),
    ),
    "2026-09-09": Expected(
        "web",
        (("berth-plan",), ("accessibility", "colour-blindness"), ("time-zones", "local-time")),
        ("colours", "typescript", "linting", "legend"),
    ),
    "2026-09-11": Expected(
        "kelpie",
        (("unicode", "unicode-normalisation"), ("uploads", "push", "sync", "re-upload")),
        ("file-names", "timestamps", "manifest"),
    ),
    "2026-09-15": Expected(
        "tidewatch",
        (
            ("double-booking", "double-bookings"),
            ("exclusion-constraint", "exclusion-constraints"),
            ("concurrency", "race-condition"),
        ),
        ("bookings", "berths", "convoys", "postgres", "transactions", "migration"),
    ),
    "2026-09-17": Expected(
        "tidewatch",
        (("reporting", "morning-report", "morgenbericht", "daily-report"), ("scheduling", "systemd", "systemd-timers")),
        ("internationalisation", "localisation", "time-zones", "printing", "units"),
    ),
    "2026-09-18": Expected(
        "tidewatch",
        (("ci",), ("flaky-tests", "test-isolation", "testing")),
        ("pytest", "redis", "parallel-tests"),
    ),
    "2026-09-24": Expected(
        "tidewatch",
        (("redis",), ("postgres",), ("predictions", "tide-predictions"), ("caching", "cache")),
        ("decisions", "flaky-tests"),
    ),
    "2026-09-25": Expected(
        "kelpie",
        (("release", "releases"), ("sqlite", "sqlite-manifest"), ("manifest", "sqlite-manifest")),
        ("sqlite", "sqlite-manifest", "testing", "migration", "concurrency"),
    ),
    "2026-09-29": Expected(
        "tidewatch",
        (
            ("migration", "database-migration"),
            ("postgres",),
            ("partitioning", "partitions"),
            ("collation",),
            ("data-quality", "duplicate-readings", "duplicates"),
            ("backup", "backups"),
            ("grafana", "monitoring"),
            ("tide-gauge-importer", "importer", "data-import", "catch-up"),
        ),
        (
            "authorisation",
            "roles",
            "deployment",
            "transactions",
            "retries",
            "systemd",
            "time-zones",
            "monitoring",
            "exclusion-constraint",
        ),
    ),
    "2026-10-01": Expected(
        "tidewatch",
        (("performance", "slow-queries"), ("gauge-history",), ("indexing", "analyze", "statistics", "query-planning")),
        ("migration", "partitioning", "postgres"),
    ),
    "2026-10-06": Expected(
        "tidewatch",
        (
            ("csv", "data-import", "csv-import", "backfill"),
            ("data-quality", "plausibility", "plausibility-check"),
            ("units", "metric-units"),
        ),
        ("data-import", "time-zones", "tide-gauges", "tg-04", "missing-readings"),
    ),
    "2026-10-09": Expected(
        "kelpie",
        (("offline-sync", "conflict-resolution", "sync-conflicts", "conflicts"), ("webdav",)),
        ("notes", "versioning", "uploads"),
    ),
    "2026-10-13": Expected(
        "brine",
        (("storage", "zfs", "zpool"), ("disk-failure", "degraded-pool", "cabling")),
        ("zfs", "storage", "backup", "notifications", "alerting", "postgres"),
    ),
    "2026-10-20": Expected(
        "tidewatch",
        (("storm-surge-warning", "surge-warning", "storm-surge", "storm-surges"), ("postgres",)),
        ("notifications", "alerting", "forecasting", "thresholds"),
    ),
}


@dataclass(frozen=True, slots=True)
class Score:
    """How well tags meet the gold list."""

    precision: float
    recall: float
    wrong: list[str]
    missed: list[str]


def score(found: dict[str, set[str]]) -> Score:
    """Scores the tags (`key:value`) of each day's session."""
    wrong: list[str] = []
    missed: list[str] = []
    right = hit = wanted = 0
    for day, gold in GOLD.items():
        tags = found.get(day, set())
        fine = {f"topic:{value}" for group in gold.expected for value in group} | {
            f"topic:{value}" for value in gold.also
        }
        fine.add(f"project:{gold.project}")
        right += len(tags & fine)
        wrong += [f"{day} {tag}" for tag in sorted(tags - fine)]
        groups = [{f"project:{gold.project}"}, *({f"topic:{value}" for value in group} for group in gold.expected)]
        wanted += len(groups)
        hit += sum(bool(group & tags) for group in groups)
        missed += [f"{day} {min(group)}" for group in groups if not group & tags]
    return Score(right / max(1, right + len(wrong)), hit / wanted, wrong, missed)
