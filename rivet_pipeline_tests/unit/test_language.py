"""An answer in letters that its source hardly has is in the wrong language; code and names are not."""

from __future__ import annotations

import pytest

from rivet_pipeline.summaries.language import wrong_language

ENGLISH = (
    "**Deployment**\n- 2026-04-18T12:00Z opus/user: the service was deployed to db-01 and the users were told about it."
)
GERMAN = "**Bereitstellung**\n- Der Dienst wurde auf dem neuen Rechner eingerichtet, und alle wurden benachrichtigt."
CHINESE = (
    "**\u90e8\u7f72**\n- \u7528\u6237\u628a\u670d\u52a1\u90e8\u7f72\u5230\u4e86\u65b0\u7684\u4e3b\u673a\u4e0a"
    "\uff0c\u5e76\u901a\u77e5\u4e86\u6240\u6709\u7684\u4eba\u3002"
)
JAPANESE = (
    "**\u30c7\u30d7\u30ed\u30a4**\n- \u30e6\u30fc\u30b6\u30fc\u306f\u65b0\u3057\u3044\u30db\u30b9\u30c8\u306b"
    "\u30b5\u30fc\u30d3\u30b9\u3092\u5c0e\u5165\u3057\u3001\u5168\u54e1\u306b\u77e5\u3089\u305b\u305f\u3002"
)
KOREAN = (
    "**\ubc30\ud3ec**\n- \uc0ac\uc6a9\uc790\ub294 \uc0c8 \ud638\uc2a4\ud2b8\uc5d0 \uc11c\ube44\uc2a4\ub97c "
    "\ubc30\ud3ec\ud558\uace0 \ubaa8\ub450\uc5d0\uac8c \uc54c\ub838\ub2e4."
)
RUSSIAN = (
    "**\u0420\u0430\u0437\u0432\u0451\u0440\u0442\u044b\u0432\u0430\u043d\u0438\u0435**\n- \u0421\u043b\u0443"
    "\u0436\u0431\u0430 \u0431\u044b\u043b\u0430 \u0437\u0430\u043f\u0443\u0449\u0435\u043d\u0430 \u043d\u0430 "
    "\u043d\u043e\u0432\u043e\u043c \u0441\u0435\u0440\u0432\u0435\u0440\u0435, \u0438 \u0432\u0441\u0435\u043c"
    " \u043e\u0431 \u044d\u0442\u043e\u043c \u0441\u043a\u0430\u0437\u0430\u043b\u0438."
)
ARABIC = (
    "\u062a\u0645 \u0646\u0634\u0631 \u0627\u0644\u062e\u062f\u0645\u0629 \u0639\u0644\u0649 \u0627\u0644\u062e"
    "\u0627\u062f\u0645 \u0627\u0644\u062c\u062f\u064a\u062f \u0648\u0625\u0628\u0644\u0627\u063a \u0627\u0644"
    "\u062c\u0645\u064a\u0639"
)
#: As long as it is, it is no language.
CODE = " `pnpm install --frozen-lockfile` https://example.org/some/long/path getUserById src/timer.test.ts BASE_URL" * 5


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        (CHINESE, ENGLISH), (RUSSIAN, ENGLISH), (ARABIC, ENGLISH), (KOREAN, ENGLISH), (JAPANESE, ENGLISH),
        (ENGLISH, CHINESE), (ENGLISH, RUSSIAN), (ENGLISH, ARABIC), (CHINESE, KOREAN), (RUSSIAN, CHINESE),
        (CHINESE + CODE, ENGLISH), (ENGLISH, CHINESE + CODE), (ENGLISH + CODE, CHINESE + CODE),
        (CHINESE, ENGLISH * 9 + CHINESE[:12]),
    ],
)  # fmt: skip
def test_the_wrong_language(answer: str, source: str) -> None:
    assert wrong_language(answer, source)


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        (ENGLISH, ENGLISH), (CHINESE, CHINESE), (JAPANESE, JAPANESE), (KOREAN + CODE, KOREAN),
        # Languages of one script are not told apart, and of two that a source has either is right.
        (GERMAN, ENGLISH), (ENGLISH, ENGLISH + CHINESE * 9), (CHINESE, ENGLISH + CHINESE),
        # Names and quotations of another script.
        (ENGLISH + " It was asked for by \u738b\u5c0f\u660e and \u674e\u96f7: \u201c\u8bf7\u7528 pnpm\u201d.", ENGLISH),
        (CHINESE + CODE, CHINESE), (CODE, CHINESE), (ENGLISH, CODE), (ENGLISH, "123 456"), ("OK", CHINESE), ("", ""),
        # Messages of few words around results in English.
        (ENGLISH, "\u8bf7\u4fee\u590d\u8fd9\u4e2a\n" + "added 312 packages, all audited, no vulnerabilities\n" * 3),
    ],
)  # fmt: skip
def test_no_wrong_language(answer: str, source: str) -> None:
    assert not wrong_language(answer, source)
