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
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2330; }
h1 { margin-bottom: 0 } h2 { margin-top: 2.5rem; text-transform: capitalize; border-bottom: 1px solid #d5dae3 }
article { margin: 1.5rem 0 } h3 { margin-bottom: .2rem }
code, pre { font: 14px/1.45 ui-monospace, monospace } pre { background: #f3f5f9; padding: .8rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .3rem .6rem }
tr + tr td { border-top: 1px solid #e3e7ee } .method { color: #fff; background: #2b5fab; padding: .1rem .5rem }
@media (prefers-color-scheme: dark) {
  body { background: #14181f; color: #e2e6ee } pre { background: #1e242e } tr + tr td, h2 { border-color: #333c4a }
  a { color: #8ab4f8 }
}
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: Lets the page's one style sheet through and nothing else.
DOCS_CSP = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"


def render_docs(document: Mapping[str, Any]) -> str:
    """An HTML page of an OpenAPI document: every route by tag, with its parameters and an example."""
    info = document["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])}</h1><p>{escape(info['version'])} · ",
        "<a href='/openapi.json'>OpenAPI document (JSON)</a></p>",
        _paragraphs(info.get("description", "")),
    ]
    for tag in document.get("tags", []):
        parts.append(f"<h2 id='{escape(tag['name'])}'>{escape(tag['name'])}</h2>")
        parts.append(_paragraphs(tag.get("description", "")))
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation.get("tags", []):
                    parts.append(_operation(document, path, method, operation))
    return "\n".join(parts) + "</html>"


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> str:
    parts = [
        f"<article><h3><span class=method>{method.upper()}</span> <code>{escape(path)}</code></h3>",
        f"<p><strong>{escape(operation.get('summary', ''))}</strong></p>",
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
