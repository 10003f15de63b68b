"""What protocols, Python names and tables promise, as JSON, and what would break it.

    python -m tests.stability.shapes

writes the promises of today beside this file. It runs once for a major version: afterwards the
files only change where docs/stability.md allows it, which the reviewer of that change decides.
"""

import json
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from warrenmq.admin.protocol import requests
from warrenmq.management.app import all_routes
from warrenmq.management.openapi.document import document
from warrenmq.server.config.keys import ALL
from warrenmq.tables.columns import MESSAGE_COLUMNS
from warrenmq.tables.schemas import COLUMNS

HERE = Path(__file__).parent
ADMIN_PROTOCOL = HERE / "admin-protocol-1.json"
HTTP_API = HERE / "http-api-1.json"
PYTHON = HERE / "python-1.json"
# The packages that applications import from, and which say what is for them.
PACKAGES = ("warrenmq.pipeline", "warrenmq.spark", "warrenmq.topology")
Schema = dict[str, Any]
# Texts for people, and defaults, which a reader does not see.
_TEXTS = {"title", "description", "summary", "default", "operationId", "examples"}


def admin_protocol() -> Schema:
    """The structures of requests and of replies, by name."""
    return {
        "header": requests.PROTOCOL_HEADER.hex(),
        "requests": _components(requests.Request),
        "replies": _components(requests.Reply),
    }


def _components(union: Any) -> Schema:
    _, components = msgspec.json.schema_components(list(dict.fromkeys(_members(union))))
    return {name: _bare(schema) for name, schema in sorted(components.items())}


def _members(union: Any) -> Iterator[type]:
    for member in typing.get_args(union):
        if typing.get_args(member):
            yield from _members(member)
        else:
            yield member


def http_api() -> Schema:
    """What each operation takes and replies, by method and path."""
    described = document(all_routes())
    operations = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parameters = {f"{each['in']} {each['name']}": each for each in operation["parameters"]}
            operations[f"{method.upper()} {path}"] = {
                "parameters": _bare(parameters),
                "body": _bare(operation.get("requestBody", {})),
                "replies": _bare(operation["responses"]),
            }
    return {"operations": operations, "schemas": _bare(described["components"]["schemas"])}


def python() -> Schema:
    """Keys of the configuration, names for applications, and columns with their types."""
    return {
        "names": {
            "keys of the configuration": sorted(key.name for key in ALL),
            **{name: sorted(import_module(name).__all__) for name in PACKAGES},
        },
        "columns": {
            table: {name: str(kind) for name, kind in columns.items()}
            for table, columns in {"queue": MESSAGE_COLUMNS, **COLUMNS}.items()
        },
    }


def _bare(schema: Any, is_names: bool = False) -> Any:
    """The schema without texts; the keys of `properties` are names of fields, not of the format."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _bare(value, key == "properties")
        for key, value in schema.items()
        if is_names or key not in _TEXTS
    }


def breaks(before: Any, now: Any, is_input: bool, path: str = "") -> Iterator[str]:
    """Lines that say what of `before` no longer holds.

    Input may be taken more freely than before, and output may have more fields.
    """
    if not isinstance(before, dict) or not isinstance(now, dict):
        if before != now:
            yield f"{path}: {before!r} has become {now!r}"
        return
    for key in sorted({*before, *now}):
        place = f"{path}.{key}" if path else key
        was, is_now = before.get(key), now.get(key)
        if key == "properties":
            yield from _lost_fields(was or {}, is_now or {}, is_input, place)
        elif key == "required" and isinstance(was or is_now, list):
            yield from _changed_duties(set(was or ()), set(is_now or ()), is_input, place)
        elif key in ("enum", "anyOf", "oneOf"):
            wider, narrower = (is_now, was) if is_input else (was, is_now)
            if not wider or not narrower or any(each not in wider for each in narrower):
                yield f"{place}: {was!r} has become {is_now!r}"
        elif key not in before or key not in now:
            yield f"{place}: {was!r} has become {is_now!r}"
        else:
            yield from breaks(was, is_now, is_input, place)


def _lost_fields(was: Schema, is_now: Schema, is_input: bool, path: str) -> Iterator[str]:
    for name, field in was.items():
        if name not in is_now:
            yield f"{path}.{name} is gone"
        else:
            yield from breaks(field, is_now[name], is_input, f"{path}.{name}")


def _changed_duties(was: set[str], now: set[str], is_input: bool, path: str) -> Iterator[str]:
    for name in sorted(now - was if is_input else was - now):
        yield f"{path}: {name} must {'be there' if is_input else 'no longer be there'}"


def broken_names(before: Schema, now: Schema, is_input: bool) -> list[str]:
    """`breaks` of structures by name; new ones break nothing."""
    return list(_lost_fields(before, now, is_input, "")) if before else []


def broken_admin_protocol(before: Schema, now: Schema) -> list[str]:
    """Why a client of `before` cannot use a node of `now`."""
    return [
        *([] if before["header"] == now["header"] else ["the header has changed"]),
        *broken_names(before["requests"], now["requests"], is_input=True),
        *broken_names(before["replies"], now["replies"], is_input=False),
    ]


def broken_http_api(before: Schema, now: Schema) -> list[str]:
    """Why a client of `before` cannot use an API of `now`."""
    found = broken_names(before["schemas"], now["schemas"], is_input=False)
    for name, was in before["operations"].items():
        operation = now["operations"].get(name)
        if operation is None:
            found.append(f"{name} is gone")
            continue
        for part, is_input in (("parameters", True), ("body", True), ("replies", False)):
            lines = (
                breaks(was[part], operation[part], is_input)
                if part == "body"
                else _lost_fields(was[part], operation[part], is_input, part)
            )
            found += [f"{name}: {line}" for line in lines]
        found += [
            f"{name}: {parameter} must be there"
            for parameter, schema in operation["parameters"].items()
            if schema.get("required") and parameter not in was["parameters"]
        ]
    return found


def broken_python(before: Schema, now: Schema) -> list[str]:
    """Why a program of `before` does not run with the packages of `now`."""
    gone = [
        f"{package}.{name} is gone"
        for package, names in before["names"].items()
        for name in sorted({*names} - {*now["names"].get(package, ())})
    ]
    changed = [
        f"the column {name} of {table} is {now['columns'].get(table, {}).get(name, 'gone')}"
        for table, columns in before["columns"].items()
        for name, kind in columns.items()
        if now["columns"].get(table, {}).get(name) != kind
    ]
    return gone + changed


def text_of(promises: Schema) -> str:
    """The promises as JSON, with a line for each name."""
    sections = []
    for section, named in sorted(promises.items()):
        if isinstance(named, dict):
            lines = [f"{json.dumps(name)}: {_line(each)}" for name, each in sorted(named.items())]
            sections.append(f"{json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n}")
        else:
            sections.append(f"{json.dumps(section)}: {_line(named)}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def main() -> None:
    for path, found in (
        (ADMIN_PROTOCOL, admin_protocol()),
        (HTTP_API, http_api()),
        (PYTHON, python()),
    ):
        path.write_text(text_of(found), "utf-8")


if __name__ == "__main__":
    main()
