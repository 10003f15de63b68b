"""The OpenAPI document is true: what is sent as it says gets the replies that it names."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.brokers.http_api import HttpNode

VHOST = "described"
CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
# A check of a node fails with 503.
MAY_FAIL = ("/api/health/", "/api/healthchecks/")


def test_replies_are_those_of_the_document(http_node: HttpNode) -> None:
    """Each operation is asked for, alike in each run, if it can be in a vhost for the test."""
    client = http_node.client()
    assert client.put(f"vhosts/{VHOST}").status_code == 201
    document = client.get("openapi.json").json()
    failed = []
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        try:
            send_some(operation, http_node.url.rstrip("/"))
        except (AssertionError, BaseExceptionGroup) as error:
            # One operation must not hide the others.
            failed.append(f"{operation.label}: {error}")
    assert not failed, "\n".join(failed)
    assert client.get(f"vhosts/{VHOST}").status_code == 200


def send_some(operation: schemathesis.APIOperation[Any, Any, Any, Any], address: str) -> None:
    """Send requests of an operation, and check what comes back."""
    is_end = operation.label == "DELETE /api/vhosts/{vhost}"
    vhost = {"vhost": "none" if is_end else VHOST} if "{vhost}" in operation.path else {}
    checks = [*CHECKS, *([] if operation.path.startswith(MAY_FAIL) else [not_a_server_error])]

    @settings(
        max_examples=2,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(path_parameters=vhost))
    def send(case: schemathesis.Case[Any]) -> None:
        reply = case.call(base_url=address, auth=("guest", "guest"))
        case.validate_response(reply, checks=checks)

    send()


load_all_checks()
