"""Commands whose argument is somebody's words, which may begin with a dash. Which commands these are is `main.py`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand


class FreeTextCommand(TyperCommand):
    """Takes an argument such as `- fix the tests` for the words that it is, wherever it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line with such an argument behind its options."""
        takes_value = {
            name: not getattr(option, "is_flag", True)
            for option in self.get_params(ctx)
            if option.param_type_name == "option"
            for name in (*option.opts, *option.secondary_opts)
        }
        return super().parse_args(ctx, words_last(args, takes_value))


def words_last(args: Sequence[str], takes_value: Mapping[str, bool]) -> list[str]:
    """The arguments with those last, behind `--`, that begin with a dash and can be no option, for they hold a space.

    `takes_value` has every option by name, and whether it has a value, which is the next argument or stands in the same
    one (`--agent=a b`, `-n 5`). What is one word is left alone: it may be an option mistyped.
    """
    options: list[str] = []
    words: list[str] = []
    is_value = False
    for place, one in enumerate(args):
        if one == "--" and not is_value:
            return [*options, "--", *words, *args[place + 1 :]]
        if not is_value and one.startswith("-") and len(one.split()) > 1 and not _has_value(one, takes_value):
            words.append(one)
            continue
        options.append(one)
        is_value = not is_value and takes_value.get(one, False)
    return [*options, "--", *words] if words else options


def _has_value(one: str, takes_value: Mapping[str, bool]) -> bool:
    """Whether an argument that holds a space is an option with its value."""
    name, equals, _ = one.split(maxsplit=1)[0].partition("=")
    return takes_value.get(name, False) and bool(equals or not name.startswith("--"))
