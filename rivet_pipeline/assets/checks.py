"""The asset checks: what must hold of what is stored. Each asks one question of `db/quality.py`.

See https://docs.dagster.io/guides/test/asset-checks
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from rivet_pipeline.assets.reporting import table
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.db.quality import (
    GROUNDING_FLOOR,
    Finding,
    duplicate_events,
    failing_items,
    orphan_summaries,
    overdue_items,
    ungrounded_summaries,
    wrong_width_embeddings,
)

Question = Callable[[Connection], Finding]


def _check(
    asset: str,
    name: str,
    description: str,
    question: Question,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=dg.AssetKey(asset), name=name, description=description)
    def check(store: StoreResource) -> dg.AssetCheckResult:
        with store.connection() as connection:
            finding = question(connection)
        header = list(finding.examples[0]) if finding.examples else []
        rows: Sequence[Sequence[object]] = [list(example.values()) for example in finding.examples]
        return dg.AssetCheckResult(
            passed=finding.at_fault == 0,
            severity=severity,
            metadata={
                "at_fault": finding.at_fault,
                "examined": finding.examined,
                "examples": dg.MetadataValue.md(table(header, rows) if rows else "None."),
            },
        )

    return check


def _coverage(asset: str) -> list[dg.AssetChecksDefinition]:
    return [
        _check(
            asset,
            "nothing_overdue",
            "Nothing that is due is left undone. Warns while a backlog is being worked off.",
            lambda connection: overdue_items(connection, asset),
            dg.AssetCheckSeverity.WARN,
        ),
        _check(
            asset,
            "nothing_failing",
            "No item stands in the failure ledger; each one there is shown with its cause.",
            lambda connection: failing_items(connection, asset),
            dg.AssetCheckSeverity.WARN,
        ),
    ]


def _tree(kind: str) -> list[dg.AssetChecksDefinition]:
    return [
        _check(
            f"{kind}_summaries",
            "grounded",
            f"Every {kind} summary's identifiers stand in its sources (at least {GROUNDING_FLOOR:.0%} of them).",
            lambda connection: ungrounded_summaries(connection, kind),
            dg.AssetCheckSeverity.WARN,
        ),
        _check(
            f"{kind}_summaries",
            "no_orphans",
            f"Every {kind} summary leads back to what it was made from.",
            lambda connection: orphan_summaries(connection, kind),
        ),
    ]


#: Checks that stay cheap however large the store grows; they run with every change, the others every hour.
LIVE_CHECKS = frozenset({"nothing_overdue", "nothing_failing"})


def live_check_keys(stages: Collection[str]) -> list[dg.AssetCheckKey]:
    """The cheap checks of the given stages."""
    keys = [key for check in default_checks for key in check.check_keys]
    return [key for key in keys if key.name in LIVE_CHECKS and key.asset_key.to_user_string() in stages]


default_checks: list[dg.AssetChecksDefinition] = [
    _check(
        "messages",
        "no_duplicate_events",
        "No conversation holds the same words of the same instant under two event ids (captured in the last 7 days).",
        lambda connection: duplicate_events(connection, (datetime.now(UTC) - timedelta(days=7)).date()),
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "message_embeddings",
        "one_width",
        "Every message vector has its model's width.",
        lambda connection: wrong_width_embeddings(connection, "message"),
    ),
    _check(
        "summary_embeddings",
        "one_width",
        "Every summary vector has its model's width.",
        lambda connection: wrong_width_embeddings(connection, "summary"),
    ),
    *[
        check
        for asset in (
            "message_embeddings",
            "leaf_summaries",
            "branch_summaries",
            "root_summaries",
            "summary_embeddings",
        )
        for check in _coverage(asset)
    ],
    *[check for kind in ("leaf", "branch", "root") for check in _tree(kind)],
]
