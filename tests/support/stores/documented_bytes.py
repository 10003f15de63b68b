"""The tables of bytes in docs/storage/, read from the pages and used as a decoder."""

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path

PAGES = Path(__file__).parent.parent.parent.parent / "docs" / "storage"
_FORMAT_PAGES = ("format.md", "format-checkpoint.md")

INTEGERS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}

Value = int | bytes | dict[str, "Value"] | list["Value"]
Fields = dict[str, Value]


@dataclass
class Structure:
    """One table of bytes: rows of (offset, type, field)."""

    name: str
    number: int | None
    size: int | None
    rows: list[tuple[str, str, str]] = field(default_factory=list)


def page_text() -> str:
    """All pages of docs/storage/ as one text."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md")))


@cache
def page_lines() -> list[str]:
    return page_text().splitlines()


def _format_lines() -> list[str]:
    pages = [(PAGES / name).read_text(encoding="utf-8") for name in _FORMAT_PAGES]
    return "\n".join(pages).splitlines()


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@cache
def structures() -> dict[str, Structure]:
    """The tables below third-level headings of the format pages, by name."""
    found: dict[str, Structure] = {}
    current: Structure | None = None
    for line in _format_lines():
        heading = re.fullmatch(r"### ([A-Za-z_ ]+?)(?: \((\d+)\))?(?:, (\d+) bytes)?", line)
        if heading:
            name, number, size = heading.groups()
            current = Structure(name, int(number) if number else None, int(size) if size else None)
            found[name] = current
        elif line.startswith("#"):
            current = None
        elif (
            current is not None and line.startswith("|") and not line.startswith(("| at |", "|---"))
        ):
            at, kind, name = cells_of(line)[:3]
            current.rows.append((at, kind, name.strip("`")))
    return found


def table(header: str) -> list[list[str]]:
    """The rows of the one table whose header line is `header`."""
    (rows,) = tables(header)
    return rows


def tables(header: str) -> list[list[list[str]]]:
    """The rows of each table whose header line is `header`."""
    lines = page_lines()
    found: list[list[list[str]]] = []
    for place, line in enumerate(lines):
        if line == header:
            rows = takewhile(lambda row: row.startswith("|"), lines[place + 2 :])
            found.append([cells_of(row) for row in rows])
    return found


def decode(name: str, data: bytes, start: int) -> tuple[Fields, int]:
    """Decode the structure `name` in `data` from `start` on; returns its fields and its end."""
    fields: Fields = {}
    at = start
    for offset, kind, field_name in structures()[name].rows:
        if offset:
            assert int(offset) == at - start, (
                f"{name}.{field_name} is not at {offset} but at {at - start}"
            )
        fields[field_name], at = decode_field(kind, fields, data, at)
    assert at <= len(data), f"{name} reaches beyond its record"
    return fields, at


def decode_field(kind: str, fields: Fields, data: bytes, at: int) -> tuple[Value, int]:
    if kind in INTEGERS:
        end = at + INTEGERS[kind]
        return int.from_bytes(data[at:end], "big"), end
    if match := re.fullmatch(r"(?:(\d+)|`(\w+)`) bytes", kind):
        end = at + amount(match[1], match[2], fields)
        return data[at:end], end
    if match := re.fullmatch(r"(\w+) × `(\w+)`", kind):
        values: list[Value] = []
        for _ in range(amount(None, match[2], fields)):
            value, at = decode_field(match[1], fields, data, at)
            values.append(value)
        return values, at
    if match := re.fullmatch(r"(\w+) to the end", kind):
        values = []
        while at < len(data):
            value, at = decode(match[1], data, at)
            values.append(value)
        return values, at
    return decode(kind, data, at)


def amount(digits: str | None, name: str, fields: Fields) -> int:
    value = int(digits) if digits else fields[name]
    assert isinstance(value, int)
    return value
