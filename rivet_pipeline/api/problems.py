"""How the API says that something is wrong: problem details (RFC 9457), one shape for every error.

Every refusal, validation error and unexpected failure ends here. What is allowed at all is decided in `security.py`.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rivet_pipeline.errors import ConflictError, InvalidInputError, NotFoundError, RivetError, StoreUnavailableError

_log = logging.getLogger(__name__)

_REQUEST_ID = b"x-request-id"

#: As ASGI wants them; a response may say otherwise.
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
]

#: What the OpenAPI document says about every route's errors.
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Problem details: what is wrong and what to do about it.",
        "content": {
            "application/problem+json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                        "requestId": {"type": "string"},
                        "errors": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {"field": {"type": "string"}, "problem": {"type": "string"}},
                            },
                        },
                    },
                },
                "example": {
                    "type": "about:blank",
                    "title": "Bad Request",
                    "status": 400,
                    "detail": "messages[3].role: Input should be 'user', 'assistant', 'system' or 'tool'",
                    "requestId": "0d6f2c9e8a7b4c5d9e0f1a2b3c4d5e6f",
                },
            }
        },
    }
}


#: What a route says besides, that answers 404 when what its address or its body names is not there.
NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"description": "Nothing has this id, key or name.", "content": PROBLEM_RESPONSES["default"]["content"]}
}


BAD_REQUEST: dict[int | str, dict[str, Any]] = {
    400: {"description": "The parameters do not go together.", "content": PROBLEM_RESPONSES["default"]["content"]}
}


class Refusal(HTTPException):
    """A request that is refused before any route sees it.

    An `HTTPException`, because FastAPI lets only those through when they are raised while it reads a body.
    """


def problem(
    scope: Scope,
    status: int,
    detail: str,
    *,
    errors: Sequence[Mapping[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An `application/problem+json` response. `errors` names each field that is wrong."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "requestId": scope.get("state", {}).get("request_id", ""),
    }
    if errors:
        body["errors"] = list(errors)
    return Response(
        json.dumps(body, ensure_ascii=True),
        status_code=status,
        media_type="application/problem+json",
        headers=dict(headers or {}),
    )


class RequestBoundary:
    """The outermost layer: a request id and the security headers on every response, and no failure without both.

    HEAD is answered as GET is, without the body.

    An exception that nobody handled is logged under the request id and answered with 500 and the id alone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection; anything but HTTP is passed on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = [(name, value) for name, value in message["headers"] if name != _REQUEST_ID]
                said = {name for name, _ in headers}
                headers.append((_REQUEST_ID, request_id.encode()))
                headers += [header for header in _SECURITY_HEADERS if header[0] not in said]
                message["headers"] = headers
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Refusal as refusal:
            if started:
                raise
            response = problem(scope, refusal.status_code, refusal.detail, headers=refusal.headers)
            await response(scope, receive, send_with_headers)
        except Exception:
            _log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if started:
                raise
            detail = f"Something went wrong in the service. Its log has the cause under request id {request_id}."
            await problem(scope, 500, detail)(scope, receive, send_with_headers)


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head


def field_path(location: Sequence[int | str]) -> str:
    """Where in the request something is wrong: `messages[3].role`, `since`, or `body` for the whole of it."""
    path = ""
    for part in location[1:]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path or str(location[0] if location else "body")


def _explain(error: Mapping[str, Any], known: Sequence[str]) -> dict[str, str]:
    if error["type"] == "json_invalid":
        return {"field": "body", "problem": f"not JSON: {error['ctx']['error']} at character {error['loc'][1]}"}
    text = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        takes = f"known are {', '.join(known)}" if known else "this address takes none"
        text = "unknown field" if error["loc"][0] == "body" else f"unknown parameter; {takes}"
    elif error["type"] == "missing":
        text = "is required"
    return {"field": field_path(error["loc"]), "problem": text}


def _parameters_of(request: Request) -> list[str]:
    """The names of the query parameters that the request's route knows, as its OpenAPI entry lists them."""
    operation = request.app.openapi()["paths"].get(request.url.path, {}).get(request.method.lower(), {})
    return [parameter["name"] for parameter in operation.get("parameters", [])]


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    known = _parameters_of(request)
    errors = [_explain(item, known) for item in error.errors()[:20]]
    first = errors[0]
    more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
    return problem(request.scope, 400, f"{first['field']}: {first['problem']}{more}", errors=errors)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail, headers = str(error.detail), error.headers
    if error.status_code == 404:
        detail = "There is nothing at this address; /docs lists what there is."
    elif error.status_code == 405 and not isinstance(error, Refusal):
        allowed = ", ".join(_methods_at(request, (headers or {}).get("allow", "")))
        detail = f"{request.method} is not possible here; use {allowed or 'another method'}."
        headers = {"allow": allowed} if allowed else headers
    elif error.status_code == 400 and error.__cause__ is not None:
        detail = "body: not JSON in UTF-8"
    return problem(request.scope, error.status_code, detail, headers=headers)


def _methods_at(request: Request, known: str) -> list[str]:
    """What a documented address may be asked by: Starlette knows the methods of the first route there alone."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    if request.url.path in paths:
        return sorted(method.upper() for method in paths[request.url.path])
    return [method.strip() for method in known.split(",") if method.strip()]


async def _on_rivet_error(request: Request, error: Exception) -> Response:
    if isinstance(error, InvalidInputError):
        return problem(request.scope, 400, str(error), errors=[{"field": error.field, "problem": error.problem}])
    if isinstance(error, NotFoundError):
        return problem(request.scope, 404, str(error))
    if isinstance(error, ConflictError):
        return problem(request.scope, 409, str(error))
    if isinstance(error, StoreUnavailableError):
        return _unavailable(request, str(error))
    assert isinstance(error, RivetError)
    return problem(request.scope, 400, str(error))


async def _on_database_error(request: Request, error: Exception) -> Response:
    _log.warning("request %s: database error: %s", request.scope["state"]["request_id"], " ".join(str(error).split()))
    return _unavailable(request, "The database can not be reached or does not answer in time; try again shortly.")


async def _on_missing_table(request: Request, error: Exception) -> Response:
    return _unavailable(request, "The store has not been set up yet; start `rivet up` once.")


def _unavailable(request: Request, detail: str) -> Response:
    return problem(request.scope, 503, detail, headers={"Retry-After": "5"})


def install_handlers(app: FastAPI) -> None:
    """Makes every error that a route can raise end as problem details."""
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RivetError, _on_rivet_error)
    app.add_exception_handler(psycopg.OperationalError, _on_database_error)
    app.add_exception_handler(PoolTimeout, _on_database_error)
    app.add_exception_handler(psycopg.errors.UndefinedTable, _on_missing_table)
