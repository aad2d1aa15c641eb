"""The page at `/docs`: the OpenAPI document as one readable HTML page, without scripts and without other servers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#faf8f4, #14171a); --ink: light-dark(#20262a, #e7e5df);
  --muted: light-dark(#5a6268, #a2a9ad); --line: light-dark(#e4dfd5, #2c3237); --sunken: light-dark(#f2efe8, #101316);
  --accent: light-dark(#0b665c, #63cbbb); --soft: light-dark(#e3f1ee, #15302c); --warm: light-dark(#8a4b0d, #e8a764) }
html { scroll-padding-top: 1rem }
body { font: 15px/1.6 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; color: var(--ink);
  background: var(--paper); max-width: 74rem; margin: 0 auto; padding: 2rem 1rem 4rem; overflow-wrap: anywhere }
h1, h2 { font-family: "Iowan Old Style", Palatino, "Noto Serif", "DejaVu Serif", Georgia, serif; line-height: 1.25 }
h1 { margin: 0; font-size: 1.6rem } h2 { margin: 3rem 0 .5rem; text-transform: capitalize; font-size: 1.25rem }
h3 { margin: 0; font-size: 1rem } h4 { margin: 1rem 0 .25rem; font-size: .8125rem; color: var(--muted) }
p { margin: .5rem 0; max-width: 72ch } a { color: var(--accent); text-underline-offset: .18em }
article { margin: 1.25rem 0; padding: 1.25rem 0 0; border-top: 1px solid var(--line) }
article:target h3 code { background: var(--soft) }
code, pre { font: .8125rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }
h3 code { font-size: .9375rem; font-weight: 600 } h3 a { color: inherit; text-decoration: none }
pre { background: var(--sunken); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem;
  white-space: pre-wrap }
table { border-collapse: collapse; width: 100%; font-size: .8125rem; overflow-wrap: normal }
td { vertical-align: top; padding: .4rem 1rem .4rem 0; border-top: 1px solid var(--line); overflow-wrap: anywhere }
td:first-child { width: 13rem } td:nth-child(2) { width: 13rem; color: var(--muted) }
.method { display: inline-block; min-width: 3.2rem; font-size: .75rem; font-weight: 700; color: var(--accent) }
.method.post { color: var(--warm) } .summary { font-weight: 600 } .muted { color: var(--muted) }
nav ul { list-style: none; padding: 0; margin: 0 0 1rem } nav p { margin: 0; font-weight: 600 }
nav a { display: flex; gap: .25rem; align-items: baseline; min-height: 1.6rem; text-decoration: none }
nav code { color: var(--ink) } nav a:hover { text-decoration: underline } nav .method { flex: 0 0 auto }
nav { font-size: .8125rem }
@media (min-width: 62rem) {
  .columns { display: grid; grid-template-columns: 19rem minmax(0, 1fr); gap: 3rem; align-items: start }
  nav { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; padding: 1rem 0 }
}
@media (max-width: 40rem) { td { display: block; padding: .1rem 0; border: 0; width: auto }
  td:first-child { border-top: 1px solid var(--line); padding-top: .4rem }
  td:first-child, td:nth-child(2) { width: auto }
}
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: .25rem }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: Lets the page's one style sheet through and nothing else.
DOCS_CSP = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"


def render_docs(document: Mapping[str, Any]) -> str:
    """An HTML page of an OpenAPI document: every route by tag, with its parameters and an example."""
    info = document["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}: the API</title>",
        f"<meta name=viewport content='width=device-width, initial-scale=1'><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])}</h1><p class=muted>{escape(info['version'])} · ",
        "<a href='/openapi.json'>OpenAPI document (JSON)</a> · <a href='/hub'>The hub</a></p>",
        _paragraphs(info.get("description", "")),
        f"<div class=columns>{_contents(document)}<main>",
    ]
    for tag in document.get("tags", []):
        parts.append(f"<h2 id='{escape(tag['name'])}'>{escape(tag['name'])}</h2>")
        parts.append(_paragraphs(tag.get("description", "")))
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation.get("tags", []):
                    parts.append(_operation(document, path, method, operation))
    return "\n".join(parts) + "</main></div></html>"


def _contents(document: Mapping[str, Any]) -> str:
    """Every route by tag, as links to where it is described."""
    parts = ["<nav aria-label=Contents>"]
    for tag in document.get("tags", []):
        routes = [
            f"<li><a href='#{_anchor(method, path)}'><span class='method {method}'>{method.upper()}</span> "
            f"<code>{escape(path)}</code></a></li>"
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if tag["name"] in operation.get("tags", [])
        ]
        parts.append(f"<p>{escape(tag['name'].capitalize())}</p><ul>{''.join(routes)}</ul>")
    return "".join(parts) + "</nav>"


def _anchor(method: str, path: str) -> str:
    return f"{method}{re.sub('[^A-Za-z0-9]+', '-', path)}".rstrip("-")


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> str:
    parts = [
        f"<article id='{_anchor(method, path)}'>",
        f"<h3><a href='#{_anchor(method, path)}'><span class='method {method}'>{method.upper()}</span> ",
        f"<code>{escape(path)}</code></a></h3>",
        f"<p class=summary>{escape(operation.get('summary', ''))}</p>",
        _paragraphs(operation.get("description", "")),
    ]
    parameters = [
        (parameter["name"], parameter.get("required", False), parameter["schema"], parameter.get("description"))
        for parameter in operation.get("parameters", [])
    ]
    parts.append(_table("Parameters", sorted(parameters, key=lambda parameter: not parameter[1])))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        model = _resolve(document, body)
        parts.extend(f"<pre>{_json(example)}</pre>" for example in model.get("examples", [])[:1])
        parts.extend(_tables(document, "Body", model))
    answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    parts.extend(_tables(document, "Answer", _resolve(document, answer)))
    return "\n".join(parts) + "</article>"


def _resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: Mapping[str, Any] = document["components"]["schemas"][reference.rpartition("/")[2]]
    return found


def _tables(document: Mapping[str, Any], title: str, model: Mapping[str, Any]) -> list[str]:
    """A model's fields, and those of the models that it lists."""
    tables = [_table(title, _fields(model))]
    for name, schema in model.get("properties", {}).items():
        if "$ref" in schema.get("items", {}):
            tables.append(_table(f"{title}: each of {name}", _fields(_resolve(document, schema["items"]))))
    return tables


def _fields(model: Mapping[str, Any]) -> list[tuple[str, bool, Mapping[str, Any], str | None]]:
    required = model.get("required", [])
    return [
        (name, name in required, schema, schema.get("description"))
        for name, schema in model.get("properties", {}).items()
    ]


def _table(title: str, rows: Iterable[tuple[str, bool, Mapping[str, Any], str | None]]) -> str:
    lines = []
    for name, required, schema, description in rows:
        notes = ["required"] if required else []
        if schema.get("default") is not None:
            notes.append(f"default {json.dumps(schema['default'])}")
        about = " · ".join([*notes, description or ""]).removesuffix(" · ")
        lines.append(
            f"<tr><td><code>{escape(name)}</code><td><code>{escape(_type(schema))}</code><td>{_prose(about)}</tr>"
        )
    return f"<h4>{escape(title)}</h4><table>{''.join(lines)}</table>" if lines else ""


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " | ".join(_type(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = f" {schema['minimum']} to {schema['maximum']}" if "minimum" in schema and "maximum" in schema else ""
    return str(schema.get("format") or schema.get("type") or "any") + bounds


def _json(value: object) -> str:
    return escape(json.dumps(value, indent=2, ensure_ascii=False))


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_prose(part)}</p>" for part in text.split("\n\n") if part.strip())


def _prose(text: str) -> str:
    """Escaped text, with what stands in backticks set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
