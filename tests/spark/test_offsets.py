"""Offsets are compared by Spark as text, and live as long as checkpoints do."""

import json

import pytest

from warren.spark.offsets import OffsetError, OffsetFormat, StreamPosition

FORMAT = OffsetFormat("g", "/", "or/de#rs é")
KEY = "%2F/or%2Fde%23rs%20%C3%A9"


def test_offsets_are_written_canonically() -> None:
    """Keys in sorted order at every level, as this very text: stored checkpoints hold it."""
    text = json.dumps(FORMAT.encode(StreamPosition(17, 1234)))
    assert text == f'{{"group": "g", "pos": {{"{KEY}#17": 1234}}, "v": 1}}'
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_offsets_come_back_from_any_order_of_keys() -> None:
    """Whoever edits a checkpoint by hand may shuffle them."""
    shuffled = {"v": 1, "pos": {f"{KEY}#17": 1234}, "group": "g"}
    assert FORMAT.decode(shuffled) == StreamPosition(17, 1234)
    assert json.dumps(FORMAT.encode(FORMAT.decode(shuffled))) != json.dumps(shuffled)


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ({"group": "g", "pos": {f"{KEY}#17": 1}, "v": 2}, "version 2"),
        ({}, "version None"),
        ({"group": "h", "pos": {f"{KEY}#17": 1}, "v": 1}, "reader group 'h'"),
        ({"group": "g", "pos": {"%2F/other#17": 1}, "v": 1}, "queue '%2F/other'"),
        ({"group": "g", "pos": {f"{KEY}#17": 1, f"{KEY}#18": 1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {KEY: 1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {f"{KEY}#17": True}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {f"{KEY}#17": -1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {f"{KEY}#x": 1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": [], "v": 1}, "not one of this source"),
    ],
)
def test_foreign_offsets_are_refused(offset: dict[str, object], text: str) -> None:
    """A checkpoint of another group, queue or version is not read by guesswork."""
    with pytest.raises(OffsetError, match=text):
        FORMAT.decode(offset)
