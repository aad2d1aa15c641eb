"""Reads the hub's pages as a program does that runs no scripts."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx


class Reader(HTMLParser):
    """A page's tags and its words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def values(self, tag: str, name: str) -> list[str]:
        return [attributes[name] or "" for found, attributes in self.tags if found == tag and name in attributes]


def page(client: httpx.Client, path: str, **parameters: str | int) -> Reader:
    answer = client.get(path, params=parameters or None, follow_redirects=True)
    assert answer.status_code == 200, answer.text
    return Reader(answer.text)


def form_token(read: Reader) -> str:
    return next(
        str(attributes["value"])
        for tag, attributes in read.tags
        if tag == "input" and attributes.get("name") == "form_token"
    )
