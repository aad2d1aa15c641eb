"""Tells the messages of a conversation that lie off its current path. Knows no harness."""

from __future__ import annotations

from collections.abc import Mapping


def path_to(leaf: str | None, parents: Mapping[str, str | None]) -> list[str]:
    """The ids from the first message to the leaf. A parent that is not there, or a cycle, ends the way up."""
    path: dict[str, None] = {}
    while leaf is not None and leaf in parents and leaf not in path:
        path[leaf] = None
        leaf = parents[leaf]
    return list(reversed(path))


def off_path(leaf: str | None, parents: Mapping[str, str | None]) -> set[str]:
    """The ids that branch off the way from the first message to the leaf.

    `parents` names each message's parent, which need not be there itself. What hangs together with the path in no way
    is not a branch of it.
    """
    path = path_to(leaf, parents)
    connected = dict.fromkeys(path, True)
    fork = parents[path[0]] if path else None
    if fork is not None:
        connected[fork] = True
    off: set[str] = set()
    for start in parents:
        walked: dict[str, None] = {}
        at: str | None = start
        while at is not None and at in parents and at not in connected and at not in walked:
            walked[at] = None
            at = parents[at]
        branches = at is not None and connected.get(at, False)
        connected |= dict.fromkeys(walked, branches)
        if branches:
            off |= walked.keys()
    return off
