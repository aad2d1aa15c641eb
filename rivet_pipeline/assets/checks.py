"""The asset checks: what must hold of what is stored. Each asks one question of `db/quality.py`.

See https://docs.dagster.io/guides/test/asset-checks
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from rivet_pipeline.assets.reporting import table
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.db.quality import (
    COVERAGE_FLOOR,
    GROUNDING_FLOOR,
    Finding,
    duplicate_events,
    failing_items,
    orphan_summaries,
    overdue_items,
    stale_summaries,
    uncovered_sources,
    ungrounded_summaries,
    untold_calls,
    wrong_width_embeddings,
)
from rivet_pipeline.settings import get_settings
from rivet_pipeline.stages import STAGES
from rivet_pipeline.tags.quality import alias_tags, dropped_leaves, orphan_tags, outdated_leaves
from rivet_pipeline.transcripts.spool import Spool
from rivet_pipeline.wiki.quality import oversized_pages, stale_extractions, uncited_sentences, unlike_their_patches

Question = Callable[[Connection], Finding]


#: The stages whose work can be overdue or fail: all but the transcript itself.
_REFINING = STAGES[1:]

#: Checks that stay cheap however large the store grows; they run with every change, the others every hour.
_LIVE: Mapping[str, tuple[str, Callable[[Connection, str], Finding]]] = {
    "nothing_overdue": (
        "Nothing that is due is left undone. Warns while a backlog is being worked off.",
        overdue_items,
    ),
    "nothing_failing": (
        "No item stands in the failure ledger; each one there is shown with its cause.",
        failing_items,
    ),
}


def _result(finding: Finding, key: dg.AssetCheckKey, severity: dg.AssetCheckSeverity) -> dg.AssetCheckResult:
    header = list(finding.examples[0]) if finding.examples else []
    rows: Sequence[Sequence[object]] = [list(example.values()) for example in finding.examples]
    return dg.AssetCheckResult(
        passed=finding.at_fault == 0,
        asset_key=key.asset_key,
        check_name=key.name,
        severity=severity,
        metadata={
            "at_fault": finding.at_fault,
            "examined": finding.examined,
            **{name: value for name, value in finding.figures.items() if value is not None},
            "examples": dg.MetadataValue.md(table(header, rows) if rows else "None."),
        },
    )


# One step for all of them: a step of its own for each would take half of a small run's time.
@dg.multi_asset_check(
    name="live_checks",
    specs=[
        dg.AssetCheckSpec(name, asset=dg.AssetKey(stage), description=description)
        for stage in _REFINING
        for name, (description, _) in _LIVE.items()
    ],
    can_subset=True,
)
def live_checks(context: dg.AssetCheckExecutionContext, store: StoreResource) -> Iterator[dg.AssetCheckResult]:
    """Asks the cheap questions about the stages of the run, when all of these are done."""
    with store.connection() as connection:
        for key in context.selected_asset_check_keys:
            _, question = _LIVE[key.name]
            finding = question(connection, key.asset_key.to_user_string())
            yield _result(finding, key, dg.AssetCheckSeverity.WARN)


def live_check_keys(stages: Collection[str]) -> list[dg.AssetCheckKey]:
    """The cheap checks of the given stages."""
    return [key for key in live_checks.check_keys if key.asset_key.to_user_string() in stages]


def _check(
    asset: str,
    name: str,
    description: str,
    question: Question,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetChecksDefinition:
    key = dg.AssetCheckKey(dg.AssetKey(asset), name)

    @dg.asset_check(asset=key.asset_key, name=name, description=description)
    def check(store: StoreResource) -> dg.AssetCheckResult:
        with store.connection() as connection:
            return _result(question(connection), key, severity)

    return check


def _undelivered(connection: Connection) -> Finding:
    """What waits in the spool for too long, and what was refused."""
    spool = Spool(get_settings().spool_folder)
    status = spool.status()
    examples: list[dict[str, object]] = [{"capture": "(all)", "why": line} for line in status.complaints]
    refused = spool.dead()[:10] if status.dead and not status.problem else []
    examples += [{"capture": one.session_key or one.name, "why": one.reason} for one in refused]
    return Finding(len(status.complaints), status.depth + status.dead, examples)


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
            "nothing_stale",
            f"Every {kind} summary is of the current version and model, and of its sources as they are now.",
            lambda connection: stale_summaries(connection, kind),
            dg.AssetCheckSeverity.WARN,
        ),
        _check(
            f"{kind}_summaries",
            "covered",
            f"At least {COVERAGE_FLOOR:.0%} of what each {kind} summary is made from left a word of its own in it.",
            lambda connection: uncovered_sources(connection, kind),
            dg.AssetCheckSeverity.WARN,
        ),
        _check(
            f"{kind}_summaries",
            "no_orphans",
            f"Every {kind} summary leads back to what it was made from.",
            lambda connection: orphan_summaries(connection, kind),
        ),
    ]


default_checks: list[dg.AssetChecksDefinition] = [
    _check(
        "messages",
        "no_duplicate_events",
        "No conversation holds the same words of the same instant under two event ids (captured in the last 7 days).",
        lambda connection: duplicate_events(connection, (datetime.now(UTC) - timedelta(days=7)).date()),
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "messages",
        "captures_delivered",
        "No capture of this machine has waited for the API for more than ten minutes, and none was refused.",
        _undelivered,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "tool_call_text",
        "every_call_told",
        "Every tool call without words of its own has a text, once its conversation has been silent for an hour.",
        untold_calls,
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
    _check("tag_proposals", "no_orphans", "Every tag stands on a conversation or summary that is there.", orphan_tags),
    _check("tag_proposals", "no_aliases", "No tag has a value that was merged into another one.", alias_tags),
    _check(
        "tag_proposals",
        "none_dropped",
        "No leaf went without tags because its tagger failed twice; `rivet tags again --dropped` has them asked about "
        "again.",
        dropped_leaves,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "tag_proposals",
        "nothing_stale",
        "Every leaf's tags were proposed by the current version.",
        outdated_leaves,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "wiki_embeddings",
        "one_width",
        "Every page's vector has its model's width.",
        lambda connection: wrong_width_embeddings(connection, "topic"),
    ),
    _check(
        "wiki_embeddings",
        "nothing_failing",
        "No page stands in the failure ledger; each one there is shown with its cause.",
        lambda connection: failing_items(connection, "wiki_embeddings"),
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "wiki_patches",
        "nothing_stale",
        "No leaf was mined by an older version only.",
        stale_extractions,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "wiki_topics",
        "every_sentence_cited",
        "Every sentence of every page leads to a leaf summary that an applied patch came from.",
        uncited_sentences,
    ),
    _check(
        "wiki_topics",
        "pages_are_their_patches",
        "The pages that changed last are what their applied patches say together.",
        unlike_their_patches,
    ),
    _check(
        "wiki_topics",
        "pages_are_bounded",
        "No page is larger than its caps allow.",
        oversized_pages,
    ),
    live_checks,
    *[check for kind in ("leaf", "branch", "root") for check in _tree(kind)],
]
