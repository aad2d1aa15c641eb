"""The asset checks: what must hold of what is stored. Each asks one question of `db/quality.py`.

See https://docs.dagster.io/guides/test/asset-checks
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from rivet_pipeline.assets.markdown import code, table
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.db.pending import amount
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

_NOTHING_DUE = (
    "Nothing that is due is left undone. A warning during an import or a backfill is a backlog that is being worked "
    "off: leave it. If it stands for an hour, look at the last ticks of the sensor `pending_work`."
)

_NO_FAILURES = (
    "No {} stands in the failure ledger. A warning shows each with its cause: transient is tried again by itself, "
    "permanent is the configuration (`rivet doctor`), content was given up. Once the reason is gone, the job "
    "`retry_failed` has them tried at once, and says which of them wait until they are made again by hand."
)

_REDO = "They go on serving; a backfill of `{}` over their days redoes them, or the sensor `remine_stale` all of them."

_WIDTH = (
    "Every {} vector has its model's width. A failure means that the embedding server changed under the same name: "
    "give it another RIVETOS_EMBED_MODEL, and everything is embedded anew beside the old."
)

#: Checks that stay cheap however large the store grows; they run with every change, the others every hour.
_LIVE: Mapping[str, tuple[str, Callable[[Connection, str], Finding]]] = {
    "nothing_overdue": (
        _NOTHING_DUE,
        overdue_items,
    ),
    "nothing_failing": (
        _NO_FAILURES.format("item"),
        failing_items,
    ),
}


def _result(finding: Finding, key: dg.AssetCheckKey, severity: dg.AssetCheckSeverity) -> dg.AssetCheckResult:
    header = list(finding.examples[0]) if finding.examples else []
    rows: Sequence[Sequence[object]] = [
        [code(value, 200) if isinstance(value, str) else value for value in example.values()]
        for example in finding.examples
    ]
    return dg.AssetCheckResult(
        passed=finding.at_fault == 0,
        asset_key=key.asset_key,
        check_name=key.name,
        severity=severity,
        metadata={
            "at_fault": amount(finding.at_fault, at_most=True) if finding.at_most else finding.at_fault,
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
            f"Every {kind} summary's identifiers stand in its sources (at least {GROUNDING_FLOOR:.0%} of them). A "
            "warning shows the worst: read them beside their sources in the hub; many of them at once mean that the "
            "model or its prompt invents names.",
            lambda connection: ungrounded_summaries(connection, kind),
            dg.AssetCheckSeverity.WARN,
        ),
        _check(
            f"{kind}_summaries",
            "nothing_stale",
            f"Every {kind} summary is of the current version and model, and of its sources as they are now. A warning "
            f"counts those that are not. {_REDO.format('resummarize_days')}",
            lambda connection: stale_summaries(connection, kind),
            dg.AssetCheckSeverity.WARN,
        ),
        _check(
            f"{kind}_summaries",
            "covered",
            f"At least {COVERAGE_FLOOR:.0%} of what each {kind} summary is made from left a word of its own in it. A "
            "warning shows the thinnest: read them in the hub; many of them at once ask for another model or a longer "
            "answer.",
            lambda connection: uncovered_sources(connection, kind),
            dg.AssetCheckSeverity.WARN,
        ),
        _check(
            f"{kind}_summaries",
            "no_orphans",
            f"Every {kind} summary leads back to what it was made from. A failure is damage, not a backlog: rows were "
            "deleted by hand, or a restore was cut short. Restore the store from its last good copy.",
            lambda connection: orphan_summaries(connection, kind),
        ),
    ]


default_checks: list[dg.AssetChecksDefinition] = [
    _check(
        "messages",
        "no_duplicate_events",
        "No conversation holds the same words of the same instant under two event ids (captured in the last 7 days). A "
        "warning means that two writers capture one session, as a hook and an import that disagree: search finds those "
        "words twice. Switch one of them off; the rows stay.",
        lambda connection: duplicate_events(connection, (datetime.now(UTC) - timedelta(days=7)).date()),
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "messages",
        "captures_delivered",
        "No capture of this machine has waited for the API for more than ten minutes, and none was refused. A "
        "warning means that the API is away or refuses: `rivet spool list` and `rivet spool dead` say why, `rivet "
        "spool replay` sends them.",
        _undelivered,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "tool_call_text",
        "every_call_told",
        "Every tool call without words of its own has a text, once its conversation has been silent for an hour. A "
        "warning that stays through the next run means that their writer fails: see `nothing_failing`, or launch "
        "`tell_calls_days` over their days.",
        untold_calls,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "message_embeddings",
        "one_width",
        _WIDTH.format("message"),
        lambda connection: wrong_width_embeddings(connection, "message"),
    ),
    _check(
        "summary_embeddings",
        "one_width",
        _WIDTH.format("summary"),
        lambda connection: wrong_width_embeddings(connection, "summary"),
    ),
    _check(
        "tag_proposals",
        "no_orphans",
        "Every tag stands on a conversation or summary that is there. A failure is mended by the job `tidy_tags`, "
        "which runs every hour.",
        orphan_tags,
    ),
    _check(
        "tag_proposals",
        "no_aliases",
        "No tag has a value that was merged into another one. A failure names the tags: repeat the merge with `rivet "
        "tags merge`.",
        alias_tags,
    ),
    _check(
        "tag_proposals",
        "none_dropped",
        "No leaf went without tags because its tagger failed twice. A warning shows why; when the tagger answers "
        "again, `rivet tags again --dropped` has them asked about once more.",
        dropped_leaves,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "tag_proposals",
        "nothing_stale",
        f"Every leaf's tags were proposed by the current version. A warning counts the leaves of an older one. "
        f"{_REDO.format('retag_days')}",
        outdated_leaves,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "wiki_embeddings",
        "one_width",
        _WIDTH.format("page's"),
        lambda connection: wrong_width_embeddings(connection, "topic"),
    ),
    _check(
        "wiki_embeddings",
        "nothing_failing",
        _NO_FAILURES.format("page"),
        lambda connection: failing_items(connection, "wiki_embeddings"),
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "wiki_patches",
        "nothing_stale",
        f"No leaf was mined by an older version only. A warning counts those that were. "
        f"{_REDO.format('remine_wiki_days')}",
        stale_extractions,
        dg.AssetCheckSeverity.WARN,
    ),
    _check(
        "wiki_topics",
        "every_sentence_cited",
        "Every sentence of every page leads to a leaf summary that an applied patch came from. A failure names the "
        "sentences that nothing vouches for: take their patches back with `rivet wiki revert`, and report it, since "
        "the pages should have followed their patches.",
        uncited_sentences,
    ),
    _check(
        "wiki_topics",
        "pages_are_their_patches",
        "The pages that changed last are what their applied patches say together. A failure names those that are "
        "not. Any decision on a page's patches makes it again; report it, since they should never differ.",
        unlike_their_patches,
    ),
    _check(
        "wiki_topics",
        "pages_are_bounded",
        "No page is larger than its caps allow. A failure names the pages: look at the splits that `consolidate_wiki` "
        "proposes in the hub's Review.",
        oversized_pages,
    ),
    live_checks,
    *[check for kind in ("leaf", "branch", "root") for check in _tree(kind)],
]
