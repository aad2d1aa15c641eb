"""The errors that a person is meant to read: one line that says what is wrong and what to do about it.

Domain errors derive from `RivetError`; the CLI prints them without a stack trace and the API turns them into problem
details. Anything else that escapes is a defect of ours.
"""

from __future__ import annotations


class RivetError(Exception):
    """Something the user can put right. `str(error)` names the cause and the action, on one line."""


class StoreUnavailableError(RivetError):
    """The database can not be reached or lacks what we need."""


class InvalidInputError(RivetError):
    """A caller sent something we can not take. `field` names where."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NotFoundError(RivetError):
    """What a caller names is not there."""


class ConflictError(RivetError):
    """What a caller has decided rests on something that has changed meanwhile. Look again, then decide."""
