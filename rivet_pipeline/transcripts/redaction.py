r"""What a secret looks like in a text, and the text without it. Pure functions; what is stored is not looked at here.

A secret is known by its own shape (`ghp_…`, a PEM block) or by standing as a literal where a secret belongs
(`FOO_TOKEN=…`, `Authorization: …`, `scheme://user:…@host`). Code that only names one (`process.env.TOKEN`) is left
alone.

Every pattern is bounded or possessive and starts at a sign that it consumes, so the work grows with the length of the
text and with nothing else.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult

#: How often each kind was replaced: `{"github_token": 2}`.
Counts = dict[str, int]

#: What stands in the place of every secret begins so.
MARK = "[redacted:"

#: One pass finds nearly everything; what stood in the shadow of another secret is found by the next.
_PASSES = 8


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret in a text: its kind and where it stands, in characters."""

    kind: str
    start: int
    end: int


def placeholder(kind: str) -> str:
    """What is written in the place of a secret of that kind."""
    return f"{MARK}{kind}]"


def redact_text(text: str) -> tuple[str, Counts]:
    """The text with each secret replaced by its placeholder, and how many of each kind there were.

    Doing it again changes nothing; a text without a secret is returned as it is.
    """
    counts: Counter[str] = Counter()
    for _ in range(_PASSES):
        if not (found := find_secrets(text)):
            break
        text = replace_secrets(text, found)
        counts.update(secret.kind for secret in found)
    return text, dict(counts)


def redact_json(value: Any) -> tuple[Any, Counts]:
    """The JSON value with every string redacted, at any depth, and every key that holds a secret by its shape.

    A key that names a secret stays and makes its value one, as a name in a text does: `{"password": "…"}` loses a
    literal value and keeps `"${DB_PASSWORD}"`. Keys that would become the same are told apart by a `'` behind them.
    """
    counts: Counter[str] = Counter()
    redacted = _redact_value(value, counts, named=None)
    return (redacted, dict(counts)) if counts else (value, {})


def secrets_in_json(value: Any) -> set[tuple[str, str]]:
    """The (kind, value) pairs that `redact_json` would replace."""
    return set(_values_in(value, named=None))


def redact_item(item: MessageRecord | ToolResult) -> MessageRecord | ToolResult:
    """A message or a tool result without the secrets in its texts, with their count in `metadata.redacted`."""
    counts: Counter[str] = Counter()
    changes: dict[str, Any] = {}
    texts: Mapping[str, str | None] = {"tool_result": item.tool_result}
    if isinstance(item, MessageRecord):
        texts = {"content": item.content, **texts}
        changes["tool_args"] = _counted(redact_json(item.tool_args), counts)
    for name, text in texts.items():
        if text:
            changes[name] = _counted(redact_text(text), counts)
    metadata = _counted(redact_json(dict(item.metadata)), counts)
    if not counts:
        return item
    return replace(item, **changes, metadata={**metadata, "redacted": dict(counts)})


def redact_session(session: SessionRecord) -> SessionRecord:
    """A session without the secrets in its title and settings. Its key, agent and channel are its identity and stay."""
    title = redact_text(session.title)[0] if session.title else session.title
    return replace(session, title=title, settings=redact_json(dict(session.settings))[0])


def replace_secrets(text: str, found: list[Secret]) -> str:
    """The text with each of these secrets, which are in order and do not overlap, replaced by its placeholder."""
    parts: list[str] = []
    done = 0
    for secret in found:
        parts += [text[done : secret.start], placeholder(secret.kind)]
        done = secret.end
    return "".join([*parts, text[done:]])


def find_secrets(text: str) -> list[Secret]:
    """Every secret in a text, in order. Where two shapes overlap, the one that is listed first has it."""
    taken = bytearray(len(text)) if text else bytearray()
    found: list[Secret] = []
    folded = text.lower()
    for shape in _SHAPES:
        if not any(clue in folded for clue in shape.clues):
            continue
        for secret in shape.find(text):
            if secret.start < secret.end and not any(taken[secret.start : secret.end]):
                taken[secret.start : secret.end] = b"\x01" * (secret.end - secret.start)
                found.append(secret)
    return sorted(found, key=lambda secret: secret.start)


def _counted(result: tuple[Any, Counts], counts: Counter[str]) -> Any:
    counts.update(result[1])
    return result[0]


def _redact_value(value: Any, counts: Counter[str], *, named: str | None) -> Any:
    if isinstance(value, str):
        if named is not None and _is_named_secret(named, value):
            counts["secret"] += 1
            return placeholder("secret")
        return _counted(redact_text(value), counts)
    if isinstance(value, list | tuple):
        return [_redact_value(item, counts, named=named) for item in value]
    if isinstance(value, Mapping):
        return _redact_members(value, counts)
    return value


def _redact_members(value: Mapping[Any, Any], counts: Counter[str]) -> dict[Any, Any]:
    keys = [_counted(redact_text(key), counts) if isinstance(key, str) else key for key in value]
    # Keys that stay have their names first, so that only new ones have to give way.
    taken = {old for old, new in zip(value, keys, strict=True) if old == new}
    members: dict[Any, Any] = {}
    for (old, item), new in zip(value.items(), keys, strict=True):
        if old != new:
            while new in taken:
                new += "'"
            taken.add(new)
        members[new] = _redact_value(item, counts, named=_secret_name(str(old)))
    return members


def _values_in(value: Any, *, named: str | None) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if named is not None and _is_named_secret(named, value):
            yield "secret", value
        else:
            yield from ((secret.kind, value[secret.start : secret.end]) for secret in find_secrets(value))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values_in(item, named=named)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield from ((secret.kind, key[secret.start : secret.end]) for secret in find_secrets(key))
            yield from _values_in(item, named=_secret_name(str(key)))


# --- what a literal secret is, as against a word, a path, a reference or a placeholder


_PLACEHOLDER = re.compile(
    r"\A(?:[<\[({%].*[>\])}%]|[xX*.\u2022\u2026#_-]{3,}.*|.*(?:\*{3}|\u2026|\.{3}|x{6}|X{6}).*|\[redacted:.*)\Z",
    re.DOTALL,
)
_PLACEHOLDER_WORDS = re.compile(
    r"(?:\A|[^a-z])(?:your|my|some|changeme|change-me|change_me|placeholder|redacted|example|dummy|insert|replace)"
    r"(?:[^a-z]|\Z)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\$\{|\$\(|\{\{|#\{|%\(|\A\$[A-Za-z_]|\A%[sdvq]\Z|\A\$\d\Z")
_UUID = re.compile(r"\A\{?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}?\Z", re.IGNORECASE)
_DIGEST = re.compile(r"\A(?:md5|sha-?\d{1,3}|blake\w{1,3})[:=-]", re.IGNORECASE)
_PATH = re.compile(r"\A(?:~|\.{1,2})?/[\w.@+-]+(?:/|\Z)|\A[A-Za-z]:[\\/]|\A[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_SEPARATOR = re.compile(r"[-_./:|,;\s]+")
_PLAIN_CHUNK = re.compile(r"[A-Za-z]*\d{0,4}|v?\d+[A-Za-z]{0,3}|\d+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LETTER = re.compile(r"[A-Za-z]")
_ALTERNATION = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
_SIGN = re.compile(r"[!@#$%^&*?+=~]")
_DIGIT = re.compile(r"\d")


def _is_literal(value: str) -> bool:
    """Whether the value is written out, not referred to, left open, or something that is no secret by its form."""
    return not (
        _PLACEHOLDER.match(value)
        or _PLACEHOLDER_WORDS.search(value)
        or _REFERENCE.search(value)
        or _UUID.match(value)
        or _DIGEST.match(value)
        or _PATH.match(value)
        or MARK in value
    )


def _is_random(text: str) -> bool:
    """Whether the text is no word, name, number or version: at least eight characters of it are a jumble."""
    jumble = sum(len(chunk) for chunk in _SEPARATOR.split(text) if _is_jumble(chunk))
    return jumble >= 8 and _entropy(text) >= 2.5


def _is_jumble(chunk: str) -> bool:
    """Whether letters, digits and signs are thrown together as in no word, name, version or identifier."""
    letters, digits = len(_LETTER.findall(chunk)), len(_DIGIT.findall(chunk))
    if not letters or _PLAIN_CHUNK.fullmatch(chunk):
        # Camel case has words; letters thrown together change their case nearly every time.
        return letters >= 16 and letters / max(len(_CAMEL.findall(chunk)), 1) < 2.5
    return digits >= 4 or len(_ALTERNATION.findall(chunk)) >= 3 or bool(digits and _SIGN.search(chunk))


def _entropy(text: str) -> float:
    """Shannon entropy in bits a character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values()) if size else 0.0


# --- shapes


@dataclass(frozen=True, slots=True)
class _Shape:
    """How one kind of secret is found. `clues`: lower-case strings one of which every text that holds one contains."""

    clues: tuple[str, ...]
    find: Callable[[str], Iterator[Secret]]


#: What may stand before a token: anything but a letter, a digit or `_`; an escape that ends in one (`\n`, `%3D`,
#: `\u003d`, a terminal's colour) is no part of it.
_START_AT = (
    r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=\[m)|(?<=\[\dm)|(?<=[\[;]\d\dm))"
)
_START = re.compile(_START_AT)


def _token(kind: str, clues: str | tuple[str, ...], pattern: str, check: Callable[[str], bool] | None = None) -> _Shape:
    """A token with a prefix of its own. A group in the pattern is the secret part; `check` is asked about it."""
    compiled = re.compile(pattern)

    def find(text: str) -> Iterator[Secret]:
        group = 1 if compiled.groups else 0
        at = 0
        # Searching for the prefix first and looking at what stands before it then is ten times as quick.
        while match := compiled.search(text, at):
            if _START.match(text, match.start()) is None:
                at = match.start() + 1
                continue
            at = match.end()
            if check is None or check(match.group(group)):
                yield Secret(kind, match.start(group), match.end(group))

    return _Shape((clues,) if isinstance(clues, str) else clues, find)


_END = r"(?![A-Za-z0-9_])"

#: The part after the bot's number, which is public.
_TELEGRAM = re.compile(r":(?<=\d{6}:)([A-Za-z0-9_-]{35})(?![A-Za-z0-9_-])")


def _find_telegram_tokens(text: str) -> Iterator[Secret]:
    for match in _TELEGRAM.finditer(text):
        if match.group(1).startswith("AA") or _is_random_key(match.group(1)):
            yield Secret("telegram_token", match.start(1), match.end(1))


def _is_jwt(token: str) -> bool:
    head = token.split(".", 1)[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


def _is_random_key(token: str) -> bool:
    return _is_random(token) and _is_given(token)


def _is_given(token: str) -> bool:
    """Whether the token is no stand-in such as `ghp_xxxxxxxx` or `sk-ant-your-key-here`."""
    return not _PLACEHOLDER_WORDS.search(token) and "xxxxxx" not in token.lower()


# No part of it has a bound, so it is looked for only where it can begin.
_JWT = re.compile(_START_AT + r"(?<!-)eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{2,}+(?:\.[A-Za-z0-9_-]*+){1,3}+")


def _find_jwts(text: str) -> Iterator[Secret]:
    for match in _JWT.finditer(text):
        if _is_jwt(match.group()):
            yield Secret("jwt", match.start(), match.end())


_PEM_MARKER = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_HEADER = r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): [^\n\\]{0,200}+"
#: What stands between the lines of a key: line ends, real or escaped; quotes; the line numbers of a listing.
_PEM_GAP = r"(?:[\s\"'`,+>|\u2192:]|\\+[nrt\"']|\\+(?=\s)|\d{1,6}(?=[\u2192\t:|]))"
_PEM_BODY = re.compile(rf"(?:{_PEM_GAP}*+(?:{_PEM_HEADER}|=?[A-Za-z0-9+/]{{16,}}+=*+))*+")
_PEM_REST = re.compile(rf"{_PEM_GAP}*+=?[A-Za-z0-9+/]{{1,15}}+=*+(?=\s*+\Z|\s*+(?:\.\.\.|\u2026|\[))")
_PEM_RUN = re.compile(r"[A-Za-z0-9+/]{24,}+")
#: The longest private keys in use (16,384 bits of RSA) take 13,000 characters.
_PEM_LONGEST = 64_000


def _find_pem(text: str) -> Iterator[Secret]:
    markers = list(_PEM_MARKER.finditer(text))
    for place, marker in enumerate(markers):
        if marker.group(1) == "END":
            continue
        after = markers[place + 1] if place + 1 < len(markers) else None
        body_end = _pem_body_end(text, marker.end(), after.start() if after else len(text))
        closed = after is not None and after.group(1) == "END" and after.start() - marker.end() <= _PEM_LONGEST
        run = _PEM_RUN.search(text, marker.end(), min(body_end, marker.end() + 1000))
        if closed and after is not None and run is None:
            run = _PEM_RUN.search(text, marker.end(), min(after.start(), marker.end() + 1000))
        # A name of the two markers in code has no key between them.
        if run is None or not _is_key_material(run.group()):
            continue
        yield Secret("private_key", marker.start(), after.end() if closed and after is not None else body_end)


def _pem_body_end(text: str, start: int, limit: int) -> int:
    body = _PEM_BODY.match(text, start, limit)
    end = body.end() if body else start
    rest = _PEM_REST.match(text, end, limit)
    return rest.end() if rest else end


def _is_key_material(run: str) -> bool:
    return _entropy(run[:64]) > 3.0 and (_DIGIT.search(run) is not None or _is_jumble(run))


_URL = re.compile(r"://[^\s:/?#@\"'`<>\[\]]{0,100}+:([^\s/\"'`<>]{1,256})@(?=[A-Za-z0-9\[])")
_URL_WORDS = frozenset(
    ("password", "passwd", "pass", "pwd", "pw", "secret", "token", "user", "username", "yourpassword", "mypassword")
)


def _find_url_passwords(text: str) -> Iterator[Secret]:
    for match in _URL.finditer(text):
        password = match.group(1)
        if password.lower() in _URL_WORDS or _PLACEHOLDER.match(password) or _PLACEHOLDER_WORDS.search(password):
            continue
        if _REFERENCE.search(password) or "{" in password or MARK in password or password.startswith(("$", "%s")):
            continue
        yield Secret("url_password", match.start(1), match.end(1))


_AUTHORIZATION = re.compile(
    r"(?i:authorization)(?:\\{0,4}[\"'])?\s{0,4}[:=,]\s{0,4}(?:\\{0,4}[\"'`])?"
    r"(?i:(bearer|basic|token|apikey))[ \t]{1,4}([A-Za-z0-9._~+/=-]{6,}+)"
)
_BEARER = re.compile(_START_AT + r"(?i:bearer)[ \t]{1,4}([A-Za-z0-9._~+/=-]{16,}+)")


def _find_authorization(text: str) -> Iterator[Secret]:
    for match in _AUTHORIZATION.finditer(text):
        value = match.group(2)
        basic = match.group(1).lower() == "basic"
        if _is_basic(value) if basic else (_is_literal(value) and _is_random_key(value)):
            yield Secret("basic_auth" if basic else "bearer_token", match.start(2), match.end(2))
    for match in _BEARER.finditer(text):
        if _is_literal(match.group(1)) and _is_random_key(match.group(1)):
            yield Secret("bearer_token", match.start(1), match.end(1))


def _is_basic(value: str) -> bool:
    """Whether it is base64 of `user:password`, both given."""
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return bool(colon and password and user.isprintable() and password.isprintable())


_AWS_ID = r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"
_AWS_40 = r"(?<![A-Za-z0-9/+=])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
_AWS_SECRETS = (
    # Beside its access key id, as in a table of both; and under its name.
    re.compile(rf"{_START_AT}{_AWS_ID}[\s\S]{{0,160}}?{_AWS_40}"),
    re.compile(rf"(?i:secret_?(?:access_?)?key)[^\w\n]{{1,12}}{_AWS_40}"),
)
_CASES = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9/+]"))


def _find_aws_secrets(text: str) -> Iterator[Secret]:
    for pattern in _AWS_SECRETS:
        for match in pattern.finditer(text):
            if all(case.search(match.group(1)) for case in _CASES):
                yield Secret("aws_secret_key", match.start(1), match.end(1))


# --- literals that stand where a secret belongs

_NAME = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|account[_-]?key|encryption[_-]?key|signing[_-]?key|master[_-]?key|credential|(?<![A-Za-z])pass(?![A-Za-z]))"
)
_TAIL = r"[A-Za-z0-9_-]{0,40}+"
_QUOTE = r"\\{0,4}[\"'`]"
#: A name, what assigns (`=`, `:`, `=>`, with a type in between), and a literal in quotes or without.
_ASSIGNMENT = re.compile(
    rf"(?P<name>(?i:{_NAME}){_TAIL})"
    rf"(?:{_QUOTE})?\]?"
    r"(?:\s{0,4}:\s{0,4}[A-Za-z][\w.\[\]|]{0,30}\s{0,4}=|\s{0,8}(?:=>|:=|\?\?=|\|\|=|={1,3}|:)|(?=\s{1,4}['\"]))\s{0,8}"
    rf"(?:[frbuFRBU]{{0,2}}(?P<open>{_QUOTE})(?P<quoted>(?:(?!(?P=open))[^\\\r\n]){{6,4096}}+)(?=(?P=open))"
    r"|(?P<bare>(?:[^\s\"'`,;&|<>(){}\[\]\\]|&(?!&|[A-Za-z_][\w.-]{0,40}=)){8,4096}+)(?![(\[{<]))"
)
_FLAG = re.compile(
    rf"(?<![\w-])--(?P<name>[a-z0-9-]{{0,30}}?(?i:{_NAME}){_TAIL})[ =](?P<quote>[\"']?)(?P<value>[^\s\"'`]{{8,4096}}+)"
)
_NOT_SECRET_TAIL = re.compile(
    r"(?:ids?|names?|types?|counts?|urls?|uris?|endpoints?|files?|paths?|dirs?|limits?|lengths?|size|expir\w*|ttl|hash"
    r"|sha\d*|digest|checksum|fingerprint|arns?|refs?|references?|versions?|fields?|headers?|prefix|env|vars?|class"
    r"|provider|store|managers?|policy|usage|budget|at|in|used|index|offset|regex|pattern|format|label|hint|status)\Z",
    re.IGNORECASE,
)
_SECRET_WORD = re.compile(_NAME, re.IGNORECASE)
_NO_SECRET = re.compile(
    r"(?:next|page|pagination|continuation|cursor|sync|idempotency|cancell?ation|public(?:[_-]?key)?)[_-]?tokens?\Z",
    re.IGNORECASE,
)
_WORD_AT_END = re.compile(r"[\w-]+\Z")
_NAME_PART = re.compile(r"[_-]|(?<=[a-z0-9])(?=[A-Z])")
_PASSWORD_NAME = re.compile(r"pass|pwd", re.IGNORECASE)


def _secret_name(key: str) -> str | None:
    """The key when it names a secret (`DB_PASSWORD`, `apiKey`, not `tokenizer`, `token_count`), else None."""
    words = list(_SECRET_WORD.finditer(key[-80:]))
    if not words or _NO_SECRET.search(key[-80:]):
        return None
    tail = words[-1].string[words[-1].end() :]
    if tail[:1].isalpha() and tail.lower() != "s" and not (tail[0].isupper() and words[-1].group()[-1].islower()):
        return None
    last = _NAME_PART.split(tail)[-1]
    return None if last and _NOT_SECRET_TAIL.match(last) else key


def _is_named_secret(name: str, value: str) -> bool:
    """Whether a literal under such a name is a secret."""
    if not 6 <= len(value) <= 4096 or " " in value or not _is_literal(value):
        return False
    if _is_random(value):
        return True
    # A password that people choose: letters, a digit and a sign.
    chosen = _LETTER.search(value) and _DIGIT.search(value) and _SIGN.search(value)
    return bool(chosen and _PASSWORD_NAME.search(name))


def _find_assignments(text: str) -> Iterator[Secret]:
    for match in _ASSIGNMENT.finditer(text):
        group = "quoted" if match.group("quoted") is not None else "bare"
        start, value = match.start(group), match.group(group)
        if group == "bare":
            value = value.rstrip(".:")
        # The name's beginning is no part of the match, so that a long run of letters is not gone through ever again.
        name = text[max(match.start() - 20, 0) : match.end("name")]
        if _secret_name(_WORD_AT_END.findall(name)[-1]) is None or not _is_named_secret(match.group("name"), value):
            continue
        if group == "quoted" and "{" in value and "}" in value:
            continue
        if group == "bare" and _is_code(value):
            continue
        yield Secret("secret", start, start + len(value))
    for match in _FLAG.finditer(text):
        value = match.group("value")
        if _secret_name(match.group("name")) is not None and _is_named_secret(match.group("name"), value):
            yield Secret("secret", match.start("value"), match.end("value"))


_CODE = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\?\.|\.|::|->|!\.)[A-Za-z_$][\w$]*)+[!?]?")


def _is_code(value: str) -> bool:
    """Whether a value without quotes is an expression: a member of something, an index."""
    if _CODE.fullmatch(value) is None:
        return False
    # A dotted token has long parts that are no names.
    return not any(len(part) >= 16 and _is_jumble(part) for part in re.split(r"[.:>?!-]+", value))


_SHAPES: tuple[_Shape, ...] = (
    _Shape(("private key",), _find_pem),
    _token(
        "slack_webhook",
        "hooks.slack.com/",
        r"https?://hooks\.slack\.com/((?:services|workflows|triggers)/[A-Za-z0-9/_-]{16,255}+)",
    ),
    _Shape(("akia", "asia", "abia", "acca", "secret"), _find_aws_secrets),
    _token(
        "github_token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"gh[pousr]_[A-Za-z0-9]{{36,255}}+{_END}", _is_given
    ),
    _token("github_token", "github_pat_", rf"github_pat_[A-Za-z0-9_]{{22,255}}+{_END}", _is_given),
    _token("gitlab_token", "glpat-", rf"glpat-[A-Za-z0-9_.-]{{20,300}}+{_END}", _is_given),
    _token("slack_token", "xox", r"xox[abcdeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,300}+", _is_given),
    _token("aws_access_key", ("akia", "asia", "abia", "acca"), _AWS_ID),
    _token("google_key", "aiza", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])", _is_given),
    _token("google_token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,2048}+", _is_given),
    _token("anthropic_key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,300}+", _is_given),
    _token("openai_key", "sk-", r"sk-(?!ant-)[A-Za-z0-9_-]{20,300}+", _is_random_key),
    _token("stripe_key", ("sk_live_", "rk_live_"), rf"[sr]k_live_[A-Za-z0-9]{{16,255}}+{_END}", _is_given),
    _token("npm_token", "npm_", rf"npm_[A-Za-z0-9]{{36}}{_END}", _is_given),
    _token("pypi_token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,1000}+", _is_given),
    _token("huggingface_token", "hf_", rf"hf_[A-Za-z0-9]{{30,100}}+{_END}", _is_given),
    _Shape(("eyj",), _find_jwts),
    _Shape((":",), _find_telegram_tokens),
    _Shape(("://",), _find_url_passwords),
    _Shape(("authorization", "bearer"), _find_authorization),
    _Shape(("pass", "pwd", "secret", "token", "key", "credential"), _find_assignments),
)
