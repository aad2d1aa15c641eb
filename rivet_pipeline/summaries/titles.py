"""What the words of a title are in any of the languages that are read here: names, or only what stands between them.

For readers of titles (tags and the wiki). How summaries weigh their words does not look at it.
"""

from __future__ import annotations

import re
from importlib.resources import files

#: Words of German, Spanish, French, Italian and Portuguese that name nothing. Those that name something in English
#: (car, come, or, AI, OS) are left out.
FUNCTION_WORDS = frozenset(files(__package__).joinpath("function_words.txt").read_text(encoding="utf-8").split())

#: Words that alone name no subject: of which of all the releases, plans and bugs is one to speak?
GENERIC_WORDS = frozenset(files(__package__).joinpath("generic_words.txt").read_text(encoding="utf-8").split())

ARTICLES = frozenset(
    """the a an das der die dem den el la los las un una le les une des il lo gli uno o os um uma""".split()  # noqa: SIM905
)

#: Those that stand behind an order or an infinitive (Build a …, Migrar la …), and not behind a thing, as the German
#: genitive does (Export der …).
_BEHIND_VERBS = ARTICLES - {"das", "der", "die", "dem", "den", "o"}

#: Words of English alone, by which a title is known to be in English. None of them is a thing of which a "de" speaks.
ENGLISH_WORDS = frozenset(
    """the and of to is are was not how why what when where who which with we you they at from""".split()  # noqa: SIM905
)
#: A word by itself: there are to-do lists, a file do.py and the host DO.
_DO = re.compile(r"(?<!\S)[Dd]o(?=[?!.,:;]*(?:\s|\Z))")

_ORDER = re.compile(r"\A\s*(?P<verb>[^\W\d_]{2,20})\s+(?P<article>[^\W\d_]{1,3}(?=\s)|l['\u2019])", re.IGNORECASE)
_ELISION = re.compile(r"(?<!\w)(?:(l|dell|all|dall|nell|sull|un)|d|qu)['\u2019](?=[^\W\d_]{2})", re.IGNORECASE)

#: The signs of one script: a word ends where another script begins, which no space tells in Japanese or Chinese.
SCRIPT_RUN = re.compile(
    r"[\u3400-\u9fff\u3005]+|[\u30a0-\u30ff]+|[\u3041-\u309f]+|[\uac00-\ud7af]+"
    r"|[^\W_\u3005\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def without_elisions(text: str) -> str:
    """A text in which an article or a preposition that has lost its end is a word: `l'API` is `la API`."""
    return _ELISION.sub(lambda match: "la " if match[1] else "de ", text)


def is_function_word(word: str) -> bool:
    """Whether a word, as it is written, names nothing; one in capitals is a name: a DI container, the CA."""
    return word.casefold() in FUNCTION_WORDS and not (len(word) > 1 and word.isupper())


def unshouted(title: str) -> str:
    """A title with words that name nothing in small letters where all is in capitals, which tell no name there."""
    if not title.isupper() or len(title.split()) == 1 or CJK.search(title):
        return title
    return re.sub(
        r"[^\W\d_]+", lambda word: word[0].lower() if word[0].casefold() in FUNCTION_WORDS else word[0], title
    )


def plain_title(title: str) -> str:
    """A title in which phrases are looked for: without elisions, without an order before it, and with one "do" alone.

    The "do" of an English title is a verb, and no Portuguese "of the".
    """
    title = unshouted(title)
    english = not ENGLISH_WORDS.isdisjoint(re.findall(r"\w+", title.casefold()))
    return without_order(without_elisions(_DO.sub("does", title) if english else title))


def without_order(title: str) -> str:
    """A title without the verb that it begins with: what stands right before an article does something.

    `Build a sortable table`, `Migrar la API`, `Préparer le cours`: the thing is what stands behind the article. One
    with a capital is none: Series A, Route Las Palmas.
    """
    match = _ORDER.match(title)
    if match is None or match["article"][0].isupper():
        return title
    article = match["article"].casefold()
    return title[match.end("verb") :] if article in _BEHIND_VERBS or article[1:] in {"'", "\u2019"} else title
