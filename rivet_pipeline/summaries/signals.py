"""The English wordings that tell what a statement does: correct, decide, prefer, report, announce. Word lists only.

Other languages are ranked by centrality and identifiers alone. How much each signal counts stands in `extractive.py`.
"""

from __future__ import annotations

import re
from importlib.resources import files


def _any_of(
    *wordings: str, start: str = r"\b", end: str = r"\b", flags: re.RegexFlag = re.IGNORECASE
) -> re.Pattern[str]:
    # An apostrophe may be typed or typographic.
    joined = "|".join(wordings).replace("'", "['\u2019]?")
    return re.compile(f"{start}(?:{joined}){end}", flags)


#: Says that something before it was wrong or unwanted.
CORRECTION = _any_of(
    r"(?:^|(?<=[.!?;,] ))(?:no|nope|wrong|stop|wait)\b[,.! ]",
    r"\bnot (?:that|this|what i|like that|quite)\b",
    r"\binstead\b",
    r"\bactually\b",
    r"\brather than\b",
    r"\bi (?:said|meant|asked|told you)\b",
    r"\bthat(?:'s| is) (?:wrong|not right|incorrect|not what)\b",
    r"\bdon't\b",
    r"\bdo not\b",
    r"\bshould(?:n't| not)\b",
    r"\brevert\b",
    r"\bundo\b",
    r"\bwithout asking\b",
    start="",
    end="",
)

#: Chooses, or gives the reason for a choice.
DECISION = _any_of(
    "decided",
    "decision",
    "we chose",
    "i chose",
    "chosen",
    "let's (?:go with|use|keep|do)",
    "going with",
    "we(?:'ll| will) (?:use|keep|go)",
    "settled on",
    "agreed",
    "because",
    "the reason",
    "so that",
    "trade-?off",
    "in favou?r of",
    "opted",
)

#: Says what an agent is going to do about it, or holds to be right: what a short yes then decides.
PROPOSAL = _any_of(
    r"(?:fix|proposal|remedy|so|then|cause|finding):",
    r"(?:i|we)(?:'d|'ll| would| will| can)?(?: rather| also| then| therefore)? (?:propose|suggest|recommend|refuse|use"
    r"|take|set|keep|make|add|move|choose|leave|give|grant|change|put|remove|drop|replace|bind|ignore)s?\b(?! sure)",
    r"must (?:never|not|be)|needs? (?:an?|its|their|to)|(?:is|are) safe|ignores?|measured",
    end="",
)

#: Says how somebody wants things, beyond this once.
PREFERENCE = _any_of(
    "always",
    "never",
    "prefer(?:s|red|ence)?",
    "i (?:like|want|hate|need)",
    "please (?:use|keep|make|don't)",
    "from now on",
    "by default",
    "must(?: not)?",
    "make sure",
    "keep it",
    "only use",
    "no external",
)

#: Reports something finished.
DONE = _any_of(
    "fixed|added|implemented|created|merged|released|deployed|passed|passes|completed|installed|renamed|removed",
    "replaced|updated|wrote|written|moved|refactored|resolved|committed|pushed|built|configured|migrated|enabled",
    "disabled|works now|solved|finished|shipped",
)

#: Says that something is not finished.
OPEN = _any_of(
    "todo|to-do",
    "still (?:needs?|missing|fails?|failing|open|to)",
    "remains? (?:to|open|undone)",
    "remaining (?:work|tasks?|issues?|items?|steps?)",
    "next steps?",
    "not yet|left to|follow-?up|pending|blocked|waiting",
    "needs? to be|will need",
    "unresolved|open question|later|tomorrow",
    "should (?:also|still)",
)

#: Says how things stand.
STATE = _any_of(
    "now|currently|at the moment|as of|in total",
    "is (?:set|running|live|enabled|disabled|at)",
    "runs? on|uses?|listens? on|points? (?:to|at)",
)

#: Tells of something that went wrong, or why.
PROBLEM = _any_of(
    "error|exception|failed|fails|failure|bug|broken|crash(?:es|ed)?|wrong|missing",
    "root cause|caused by|issue is|problem (?:is|was)",
    r"\w+Error|\w+Exception|exit [1-9]\d*",
    flags=re.NOFLAG,
)

#: Only announces what comes next, or greets.
FILLER = _any_of(
    "let me|let us|let's (?:see|check|look|start)",
    "i'll|i will|i am going to|i'm going to|i should|i need to|i've got|i can help|now i",
    "here(?:'s| is| are)|i (?:see|can see|understand|have a good)",
    "i hope (?:this|you|it)|hope (?:this|you)|i'm (?:glad|happy)|happy to help|you're welcome|these are just",
    "would you like|feel free|the user (?:wants|is asking|asked)",
    start=(
        r"^(?:(?:ok(?:ay)?|great|perfect|excellent|good|sure|certainly|alright|right|awesome|thanks?|thank you|hi|hello"
        r"|hmm|done)\b[,.! ]*)*(?:(?:(?:now|so|first,?|next,?|then|also,?) )*"
    ),
    end=r"\b|$)",
)

#: Points to a sentence before it, without which it says little.
BACKWARD = re.compile(r"^(?:it|this|that|they|these|those|then|which)\b", re.IGNORECASE)

#: Words that say nothing as the heading of a topic, English and German; a sentence may still turn on them.
HEADER_STOP_WORDS = frozenset(files(__package__).joinpath("header_stop_words.txt").read_text(encoding="utf-8").split())

#: Words that tell nothing of a text's subject, those of every coding session among them.
STOP_WORDS = frozenset(files(__package__).joinpath("stop_words.txt").read_text(encoding="utf-8").split())

#: Words that stand before a thing, English and German.
DETERMINERS = frozenset(
    """a an the this that these those my your our its his her their each every no another which whose
    der die das den dem des ein eine einen einem einer eines mein dein sein ihr unser kein keine jeder jede""".split()  # noqa: SIM905
)

#: Words that join two others to one phrase, English and German.
LINKS = frozenset(
    """of for in on at by with without from over under between behind before after and or the a an
    von für in im auf aus bei mit nach vor zum zur und oder der die das den dem des""".split()  # noqa: SIM905
)

#: Words that are no part of a phrase that names something: adverbs, conjunctions, and what things commonly do.
NO_PHRASE_WORDS = frozenset(files(__package__).joinpath("no_phrase_words.txt").read_text(encoding="utf-8").split())

#: Words whose number is a part of the name: chapter 3 is another thing than chapter 4.
NUMBERED = frozenset(
    """chapter section part appendix figure table exercise assignment problem lesson lecture module unit week day phase
    stage step sprint milestone iteration round level episode season volume issue ticket paper study experiment trial
    cohort sample batch run lab room bed floor house building site zone line lane track channel slot bay rack node
    server host cluster shard region gauge sensor motor pump camera printer robot gate dock berth pier kapitel
    abschnitt teil aufgabe woche phase versuch raum anlage capítulo sección parte ejercicio semana fase sala""".split()  # noqa: SIM905
)
