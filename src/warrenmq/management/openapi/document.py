"""Makes the document from the routes: their paths, the types of their replies, their texts."""

import inspect
from collections.abc import Iterable
from typing import Any, Final

from fastapi.routing import APIRoute

import warrenmq
from warrenmq.management.openapi.schemas import BODIES, CHECK, ERROR, OBJECTS, TABLE, TEXT, Schema
from warrenmq.management.rows import JsonReply, ListReply, ObjectReply, PageReply

_PREFIX: Final = "/api/"
_SEGMENT: Final = ":segment"
# Without a login.
_OPEN: Final = ("/api/auth", "/api/login")
_CHECKS: Final = ("/api/health/", "/api/healthchecks/")
_ERRORS: Final = {
    "400": "What is asked for cannot be",
    "401": "The login fails, or the user may not do this",
    "404": "Something in the path does not exist",
    "413": "The body is too large",
    "503": "The node does not answer",
}
_QUERY_OF: Final[dict[type, dict[str, str]]] = {
    ObjectReply: {"columns": "names of the fields to reply with, with commas between them"},
    ListReply: {"sort": "the field to sort by", "sort_reverse": "`true`: the largest first"},
    PageReply: {
        "page": "the number of a page, from 1",
        "page_size": "rows of a page, 100 if it is not there, 500 at most",
        "name": "a part of the names of the rows of a page",
        "use_regex": "`true`: `name` is a regular expression",
    },
}
_OF_QUEUES: Final = {
    "type": "`classic` or `quorum`",
    "state": "the state, such as `running`",
    "policy": "the name of the policy, or of the operator policy",
    "consumers": "`none`: queues without any",
    "growing": "`true`: queues with more messages than a moment ago",
}
# By path and method.
_QUERY: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("queues", "GET"): _OF_QUEUES,
    ("queues/{vhost}", "GET"): _OF_QUEUES,
    ("queues/{vhost}/{queue}", "DELETE"): {
        "if-empty": "`true` refuses a queue with messages",
        "if-unused": "`true` refuses a queue with consumers",
    },
    ("warren/queues/{vhost}/{queue}/storage/segments", "GET"): {
        "page": "the number of a page, from 1",
        "page_size": "segments of a page, 100 if it is not there, 500 at most",
    },
    ("exchanges/{vhost}/{exchange}", "DELETE"): {"if-unused": "`true` refuses one with bindings"},
    ("nodes/{name}", "GET"): {"memory": "`true` adds the memory by its use"},
    ("warren/config", "GET"): {"node": "the node that is asked, if it is not this one"},
    ("warren/log", "GET"): {
        "node": "the node that is asked, if it is not this one",
        "after": "entries with a larger number only",
        "before": "entries with a smaller number only",
        "level": "entries of this level, such as `warning`, and above",
        "text": "a part of the message, the domain or the stack",
        "limit": "entries at most, 100 if it is not there, 1000 at most",
    },
    ("definitions", "POST"): {"dry-run": "`true` says what would change"},
    ("definitions/{vhost}", "POST"): {"dry-run": "`true` says what would change"},
    ("definitions", "GET"): {"download": "the name of the file to download"},
    ("definitions/{vhost}", "GET"): {"download": "the name of the file to download"},
}


def document(routes: Iterable[APIRoute]) -> dict[str, Any]:
    """The OpenAPI document of those routes that are in the schema."""
    paths: dict[str, Any] = {}
    for route in routes:
        if route.include_in_schema:
            path = route.path.replace(_SEGMENT, "")
            for method in sorted(route.methods or ()):
                paths.setdefault(path, {})[method.lower()] = _operation(route, path, method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "warren", "version": warrenmq.__version__},
        "security": [{"basic": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {"Error": ERROR, "Check": CHECK},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(route: APIRoute, path: str, method: str) -> Schema:
    below = path.removeprefix(_PREFIX)
    kind = inspect.signature(route.endpoint).return_annotation
    found: Schema = {
        "operationId": f"{method.lower()} {below}",
        "summary": inspect.cleandoc(route.endpoint.__doc__ or "").partition("\n")[0],
        "parameters": [*_of_path(route), *_of_query(kind, below, method)],
        "responses": _responses(path, below, method, kind),
    }
    if path in _OPEN:
        found["security"] = []
    if method in ("POST", "PUT"):
        schema = BODIES.get(f"{method} {below}", TABLE)
        found["requestBody"] = {
            "required": "required" in schema,
            "content": {"application/json": {"schema": schema}},
        }
    if path == "/api/login":
        form = {"type": "object", "properties": {"username": TEXT, "password": TEXT}}
        content = {"application/x-www-form-urlencoded": {"schema": form}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _of_path(route: APIRoute) -> list[Schema]:
    kinds = inspect.signature(route.endpoint).parameters
    return [
        _parameter(name, "path", _of_annotation(kinds[name].annotation) if name in kinds else TEXT)
        for name in route.param_convertors
    ]


def _of_annotation(annotation: Any) -> Schema:
    values = getattr(annotation, "__args__", ())
    return {"enum": list(values)} if values else {"type": "string", "minLength": 1}


def _of_query(kind: Any, below: str, method: str) -> list[Schema]:
    known: dict[str, str] = {}
    if method == "GET" and isinstance(kind, type):
        # A list has columns too.
        bases = [ObjectReply, *kind.__mro__] if issubclass(kind, ListReply) else kind.__mro__
        for base in bases:
            known |= _QUERY_OF.get(base, {})
    known |= _QUERY.get((below, method), {})
    return [
        _parameter(name, "query", TEXT) | {"description": meaning}
        for name, meaning in known.items()
    ]


def _parameter(name: str, place: str, schema: Schema) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _responses(path: str, below: str, method: str, kind: Any) -> Schema:
    replies: Schema = {code: _reply(text, _ref("Error")) for code, text in _ERRORS.items()}
    # A request without a login gets no body.
    if path.startswith(_CHECKS):
        replies["503"] = _reply("The check fails, or the node does not answer", TABLE)
    if method == "GET" or (isinstance(kind, type) and issubclass(kind, JsonReply)):
        replies["200"] = _reply("Done", _of_reply(path, below, kind))
        return replies
    if method == "PUT" or below.startswith("bindings/"):
        replies["201"] = {"description": "There is something new"}
    if below.startswith("definitions"):
        replies["200"] = _reply("A dry run: what would change", TABLE)
    replies["204"] = {"description": "Done"}
    return replies


def _of_reply(path: str, below: str, kind: Any) -> Schema:
    if path.startswith(_CHECKS):
        return _ref("Check")
    if not (isinstance(kind, type) and issubclass(kind, ListReply | ObjectReply)):
        return {}
    row = OBJECTS.get(_subject(below), TABLE)
    if issubclass(kind, ObjectReply):
        return row
    rows: Schema = {"type": "array", "items": row}
    if not issubclass(kind, PageReply):
        return rows
    page = {"type": "object", "properties": {"items": rows}, "required": ["items", "page"]}
    return {"anyOf": [rows, page]}


def _subject(below: str) -> str:
    """The kind of object that a path is about, as OBJECTS names it."""
    segments = [each for each in below.split("/") if not each.startswith("{")]
    for name in reversed(segments):
        if name in OBJECTS:
            return name
        if name in ("source", "destination"):
            return "bindings"
        if name in (
            "storage",
            "memory",
            "relative",
            "ets",
            "mirrors",
            "groups",
            "sinks",
            "drain",
            "copies",
        ):
            return ""
    return ""


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _reply(text: str, schema: Schema) -> Schema:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
