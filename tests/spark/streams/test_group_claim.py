"""Tests which processes may read with one reader group beside each other."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

# A query's process: it claims the group, says so, and lives until its input ends.
PROGRAM = """
import os, sys
from warrenmq.spark.streams import group_claim
group_claim.CLAIM_TIMEOUT_S = 0.1
try:
    for _ in range(2):
        group_claim.claim_group(sys.argv[1], sys.argv[2])
    print("claimed", flush=True)
except RuntimeError as error:
    print(error, flush=True)
sys.stdin.read()
"""
URI = "amqp://guest:guest@claimed:5672/"


class Query:
    def __init__(self, uri: str, group: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, uri, group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def first() -> Iterator[Query]:
    query = Query(URI, "g")
    assert query.answer() == "claimed"
    yield query
    query.kill()


@pytest.mark.parametrize(
    ("uri", "group", "answer"),
    [
        (URI, "g", "reader group 'g' is in use by another query"),
        (URI, "other", "claimed"),
        (URI + "other", "g", "claimed"),
    ],
)
def test_a_second_query_of_a_program_needs_another_group(
    first: Query, uri: str, group: str, answer: str
) -> None:
    second = Query(uri, group)
    assert second.answer().startswith(answer)
    second.kill()


def test_the_group_of_a_killed_query_is_free(first: Query) -> None:
    first.kill()
    second = Query(URI, "g")
    assert second.answer() == "claimed"
    second.kill()
