"""Parameters that are given twice are found in one pass, however many there are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rivet_pipeline.api.dependencies import each_once
from rivet_pipeline.errors import InvalidInputError


class Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def request(names: list[Name]) -> Any:
    return SimpleNamespace(
        query_params=SimpleNamespace(multi_items=lambda: [(name, "") for name in names]),
        url=SimpleNamespace(path="/api/memory/search"),
    )


def test_many_names_are_hardly_compared_with_one_another() -> None:
    names = [Name(f"n{number}") for number in range(1000)]
    Name.compared = 0
    asyncio.run(each_once(request(names)))
    assert Name.compared < len(names)
    with pytest.raises(InvalidInputError, match="more than once"):
        asyncio.run(each_once(request([*names, Name("n7")])))
