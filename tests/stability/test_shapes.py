"""Programs for the first 1.x work with every later one: protocols, names and tables only grow.

docs/stability.md has the promise.
"""

import copy
import json
from typing import Any

import pytest

from tests.stability.shapes import (
    ADMIN_PROTOCOL,
    HTTP_API,
    PYTHON,
    admin_protocol,
    broken_admin_protocol,
    broken_http_api,
    broken_python,
    http_api,
    python,
)

PROMISED_PROTOCOL = json.loads(ADMIN_PROTOCOL.read_text())
PROMISED_API = json.loads(HTTP_API.read_text())
PROMISED_PYTHON = json.loads(PYTHON.read_text())
ADVICE = "docs/stability.md says what may change in 1.x"


def test_the_admin_protocol_keeps_what_it_had() -> None:
    assert broken_admin_protocol(PROMISED_PROTOCOL, admin_protocol()) == [], ADVICE


def test_the_http_api_keeps_what_it_had() -> None:
    assert broken_http_api(PROMISED_API, http_api()) == [], ADVICE


def test_python_names_and_tables_keep_what_they_had() -> None:
    assert broken_python(PROMISED_PYTHON, python()) == [], ADVICE


def protocol() -> Any:
    return copy.deepcopy(PROMISED_PROTOCOL)


def api() -> Any:
    return copy.deepcopy(PROMISED_API)


def test_what_only_grows_breaks_nothing() -> None:
    grown = protocol()
    grown["requests"]["New"] = grown["replies"]["Newer"] = {"type": "object"}
    grown["requests"]["Login"]["properties"]["more"] = {"type": "string"}
    grown["replies"]["LoggedIn"]["properties"]["more"] = {"type": "string"}
    grown["replies"]["LoggedIn"]["required"].append("more")
    assert broken_admin_protocol(PROMISED_PROTOCOL, grown) == []
    larger = api()
    larger["operations"]["GET /api/new"] = {"parameters": {}, "body": {}, "replies": {}}
    larger["operations"]["GET /api/queues"]["parameters"]["query more"] = {"in": "query"}
    assert broken_http_api(PROMISED_API, larger) == []


def remove_request(found: Any) -> None:
    del found["requests"]["OpenGroup"]


def remove_field(found: Any) -> None:
    del found["replies"]["LoggedIn"]["properties"]["version"]


def rename_tag(found: Any) -> None:
    found["requests"]["Login"]["properties"]["type"] = {"enum": ["log_in"]}


def change_type(found: Any) -> None:
    found["replies"]["LoggedIn"]["properties"]["version"] = {"type": "integer"}


def demand_field(found: Any) -> None:
    found["requests"]["Login"]["required"].append("client")


def drop_duty(found: Any) -> None:
    found["replies"]["LoggedIn"]["required"].remove("version")


def narrow_text(found: Any) -> None:
    found["requests"]["Login"]["properties"]["user"]["maxLength"] = 5


def change_header(found: Any) -> None:
    found["header"] = "00"


@pytest.mark.parametrize(
    "change",
    [
        remove_request, remove_field, rename_tag, change_type, demand_field, drop_duty, narrow_text,
        change_header,
    ],
)  # fmt: skip
def test_a_break_of_the_admin_protocol_is_found(change: Any) -> None:
    changed = protocol()
    change(changed)
    assert len(broken_admin_protocol(PROMISED_PROTOCOL, changed)) == 1


def remove_operation(found: Any) -> None:
    del found["operations"]["GET /api/queues"]


def remove_status(found: Any) -> None:
    found["operations"]["GET /api/queues"]["replies"].pop("200")


def remove_parameter(found: Any) -> None:
    del found["operations"]["GET /api/queues"]["parameters"]["query page"]


def demand_parameter(found: Any) -> None:
    new = {"in": "query", "name": "more", "required": True}
    found["operations"]["GET /api/queues"]["parameters"]["query more"] = new


def remove_reply_field(found: Any) -> None:
    del found["schemas"]["Error"]["properties"]["reason"]


@pytest.mark.parametrize(
    "change",
    [remove_operation, remove_status, remove_parameter, demand_parameter, remove_reply_field],
)
def test_a_break_of_the_http_api_is_found(change: Any) -> None:
    changed = api()
    change(changed)
    assert len(broken_http_api(PROMISED_API, changed)) == 1


def test_a_lost_name_and_a_changed_column_are_found() -> None:
    changed = copy.deepcopy(PROMISED_PYTHON)
    changed["names"]["warrenmq.topology"] += ["more"]
    changed["columns"]["queue"]["more"] = "string"
    assert broken_python(PROMISED_PYTHON, changed) == []
    changed["names"]["warrenmq.topology"].remove("declare")
    changed["columns"]["queue"]["body"] = "string"
    del changed["columns"]["messages"]["seq"]
    assert sorted(broken_python(PROMISED_PYTHON, changed)) == [
        "the column body of queue is string",
        "the column seq of messages is gone",
        "warrenmq.topology.declare is gone",
    ]
