"""Parses definitions in RabbitMQ's JSON into typed rows.

Both of RabbitMQ's exporters are read: that of the management plug-in, and `rabbitmqctl
export_definitions`, which writes some objects as lists of pairs and adds the type of queues. A key
whose value is null counts as missing, because tools that edit exports leave such nulls.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from warrenmq.admin.definitions.lenient_json import JsonError, strict_json

# Rows that one step parses, compares, declares or exports.
SLICE_ROWS: Final = 100
# A JSON object; RabbitMQ writes some as a list of [key, value], and an empty one as [].
Pairs = dict[str, Any] | list[tuple[str, Any]]
# Tags are a list, or a text with commas (before RabbitMQ 3.9).
Tags = list[str] | str


class DefinitionsError(ValueError):
    """The data is no set of definitions, or one of them is invalid; the text says which and why."""


class VhostMetadata(msgspec.Struct, kw_only=True):
    """The texts about a vhost that people see."""

    description: str | None = None
    tags: Tags | None = None
    default_queue_type: str | None = None


class VhostRow(VhostMetadata, kw_only=True):
    """A vhost; its metadata stands in the row itself or in `metadata`."""

    name: str
    metadata: VhostMetadata | None = None
    limits: Pairs = {}


class UserRow(msgspec.Struct, kw_only=True):
    """A user, with the hash of its password (base64) or the password itself."""

    name: str
    password_hash: str | None = None
    password: str | None = None
    hashing_algorithm: str | None = None
    tags: Tags = []
    limits: Pairs = {}


class PermissionRow(msgspec.Struct, kw_only=True):
    """The permissions of a user in a vhost.

    Here and in other rows, `vhost` is "" in an export of one vhost, which does not name it.
    """

    user: str
    vhost: str = ""
    configure: str
    write: str
    read: str


class TopicPermissionRow(msgspec.Struct, kw_only=True):
    """The topic permissions of a user at an exchange."""

    user: str
    vhost: str = ""
    exchange: str
    write: str
    read: str


class ParameterRow(msgspec.Struct, kw_only=True):
    """A parameter of a vhost; operator policies and limits are such."""

    component: str
    vhost: str = ""
    name: str
    value: Any


class GlobalParameterRow(msgspec.Struct, kw_only=True):
    """A parameter of the whole node."""

    name: str
    value: Any


class PolicyRow(msgspec.Struct, kw_only=True, rename={"apply_to": "apply-to"}):
    """A policy."""

    vhost: str = ""
    name: str
    pattern: str
    apply_to: Any = "all"
    definition: Pairs
    priority: Any = 0


class QueueRow(msgspec.Struct, kw_only=True):
    """A queue."""

    name: str
    vhost: str = ""
    durable: bool = True
    auto_delete: bool = False
    # RabbitMQ derives the type from the arguments, so it says nothing new.
    type: str = ""
    arguments: Pairs = {}


class ExchangeRow(msgspec.Struct, kw_only=True):
    """An exchange; an export has no predeclared exchanges."""

    name: str
    vhost: str = ""
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Pairs = {}


class BindingRow(msgspec.Struct, kw_only=True):
    """A binding to a queue or an exchange; `destination_type` says which."""

    source: str
    vhost: str = ""
    destination: str
    destination_type: str
    routing_key: str = ""
    arguments: Pairs = {}


class Document(msgspec.Struct, kw_only=True):
    """One set of definitions.

    `version` is that of the RabbitMQ that wrote it, or "". `left_out` says which sections and keys
    have no meaning here.
    """

    version: str = ""
    users: list[UserRow] = []
    vhosts: list[VhostRow] = []
    permissions: list[PermissionRow] = []
    topic_permissions: list[TopicPermissionRow] = []
    parameters: list[ParameterRow] = []
    global_parameters: list[GlobalParameterRow] = []
    policies: list[PolicyRow] = []
    queues: list[QueueRow] = []
    exchanges: list[ExchangeRow] = []
    bindings: list[BindingRow] = []
    left_out: list[str] = []


_R = TypeVar("_R", bound=msgspec.Struct)

# The sections that have a meaning, in the order in which they are read.
_ROW_TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    "users": UserRow,
    "vhosts": VhostRow,
    "permissions": PermissionRow,
    "topic_permissions": TopicPermissionRow,
    "parameters": ParameterRow,
    "global_parameters": GlobalParameterRow,
    "policies": PolicyRow,
    "queues": QueueRow,
    "exchanges": ExchangeRow,
    "bindings": BindingRow,
}
# Keys that say something about the export, not about what is to be defined.
_ABOUT: Final = {
    "rabbit_version", "rabbitmq_version", "product_name", "product_version",
    "rabbitmq_definition_format", "original_vhost_name", "explanation",
    # The metadata of the vhost in newer exports of a single vhost.
    "description", "metadata", "default_queue_type",
}  # fmt: skip


def parse_document(data: bytes) -> Document:
    """The definitions in JSON as RabbitMQ takes it. Raises DefinitionsError when it has none."""
    document = Document()
    try:
        strict = strict_json(data)
    except JsonError as error:
        raise DefinitionsError(str(error)) from None
    for _ in parse_steps(strict, document):
        pass
    return document


def parse_steps(data: bytes, document: Document) -> Iterator[tuple[int, int]]:
    """Parse strict JSON into the empty `document`, in short steps: rows done so far, and of all.

    Raises DefinitionsError.
    """
    sections = _decode(data, dict[str, msgspec.Raw], "no JSON object")
    version = _decode(sections.get("rabbit_version", msgspec.Raw(b'""')), Any, "rabbit_version")
    document.version = version if isinstance(version, str) else ""
    rows = {}
    for name in _ROW_TYPES:
        raw_rows = sections.pop(name, msgspec.Raw(b"null"))
        rows[name] = _decode(raw_rows, list[msgspec.Raw] | None, name) or []
        yield 0, 0
    total = sum(map(len, rows.values()))
    done = 0
    for name, kind in _ROW_TYPES.items():
        for converted in _convert(rows[name], name, kind, document):
            yield done + converted, total
        done += len(rows.pop(name))
    for name, raw in sections.items():
        value = None if name in _ABOUT else _decode(raw, Any, name)
        if value:
            count = f"{len(value)} " if isinstance(value, list) else ""
            document.left_out.append(f"{count}{name.replace('_', ' ')}")


def pairs(value: Pairs) -> dict[str, Any]:
    """The object that `value` stands for."""
    return dict(value)


def tag_list(tags: Tags | None) -> list[str]:
    """The tags, each once."""
    found = tags.split(",") if isinstance(tags, str) else tags or []
    return list(dict.fromkeys(tag.strip() for tag in found if tag.strip()))


def _convert(
    rows: list[msgspec.Raw], name: str, kind: type[_R], document: Document
) -> Iterator[int]:
    """Add the rows of the section `name` to `document`, in short steps: how many so far."""
    found: list[_R] = []
    setattr(document, name, found)
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    foreign: Counter[str] = Counter()
    for number, raw in enumerate(rows):
        where = f"{name}[{number}]"
        row = _decode(raw, dict[str, Any], where)
        given = {key: value for key, value in row.items() if value is not None or key == "value"}
        try:
            found.append(msgspec.convert(given, kind))
        except msgspec.ValidationError as error:
            raise DefinitionsError(f"{where}: {error}") from None
        foreign.update(given.keys() - known)
        if number % SLICE_ROWS == SLICE_ROWS - 1:
            yield number + 1
    for key, count in sorted(foreign.items()):
        document.left_out.append(f"the key {key} of {count} {name.replace('_', ' ')}")
    yield len(rows)


def _decode(data: bytes | msgspec.Raw, kind: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionsError(f"{where}: {error}") from None
