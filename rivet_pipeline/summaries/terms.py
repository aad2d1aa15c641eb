"""The terms of a text: what statements are compared and weighed by. Pure functions, no scores."""

from __future__ import annotations

import re

from rivet_pipeline.summaries.signals import STOP_WORDS

_TOKEN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:[-'\u2019][^\W_]+)*", re.UNICODE)
#: The folders of a path but the last: every path of a project shares them.
_FOLDERS = re.compile(r"(?<![\w.])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+-]+)*[/\\](?=[\w.@+-]+[/\\][\w.@+-]+)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def terms_of(text: str) -> list[str]:
    """The words of a text, identifiers in parts, folded to lower case; stop words and single letters left out."""
    terms: list[str] = []
    for match in _TOKEN.finditer(_CAMEL.sub(" ", _FOLDERS.sub(" ", text))):
        word = match.group(0).casefold().replace("\u2019", "'")
        if word in STOP_WORDS or (len(word) == 1 and word.isascii()):
            continue
        terms.append(stem_of(word))
    return terms


def stem_of(word: str) -> str:
    """Plural and the commonest verb endings folded, so that `sessions` meets `session`."""
    if len(word) > 4 and word.isascii() and word.isalpha():
        for ending, put in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("s", "")):
            if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us", "is")):
                return word[: len(word) - len(ending)] + put
    return word
