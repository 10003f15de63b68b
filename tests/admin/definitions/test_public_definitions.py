"""Definitions from public repositories, imported into an empty node, beside RabbitMQ's verdict.

RabbitMQ's were found by `rabbit_definitions:import_raw` on a node from which all users and vhosts
had been deleted.
"""

from pathlib import Path

import pytest

from tests.support.brokers.administered_broker import AdministeredBroker
from tests.support.rabbitmq.public_files import ACCEPTED, PublicFile, public_files
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.definitions.lenient_json import JsonError, strict_json

FILES = public_files(Path(__file__).with_name("public_definitions.txt"))


def verdict(text: str) -> str:
    """What an import into an empty node says."""
    node = AdministeredBroker()
    node.broker.vhosts.clear()
    node.broker.access.users.clear()
    try:
        outcome = node.import_definitions(strict_json(text.encode()))
    except JsonError as error:
        return str(error)
    if isinstance(outcome, Refusal):
        return outcome.text
    return "; ".join([ACCEPTED, *[f"left out: {line}" for line in outcome.left_out]])


@pytest.mark.parametrize("case", FILES, ids=lambda case: case.name)
def test_the_verdict(case: PublicFile) -> None:
    assert verdict(case.text) == case.warren


def test_what_rabbitmq_accepts_is_accepted_with_one_exception() -> None:
    """A hash of another length than its algorithm's lets nobody in."""
    refused = [
        each.name
        for each in FILES
        if each.rabbitmq == ACCEPTED and not each.warren.startswith(ACCEPTED)
    ]
    assert refused == ["a password in the place of the hash"]
