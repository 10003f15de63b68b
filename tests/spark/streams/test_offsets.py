"""Tests the offsets: Spark compares them as text and keeps them in checkpoints."""

import json

import pytest

from warrenmq.spark.streams.offsets import OffsetError, OffsetFormat, QueueKey, queue_key

FORMAT = OffsetFormat("g", "/")
ORDERS = QueueKey("or/de#rs é", 17)
KEY = "%2F/or%2Fde%23rs%20%C3%A9#17"


def test_offsets_are_written_canonically() -> None:
    """Keys are sorted at every level; stored checkpoints have exactly this text."""
    text = json.dumps(FORMAT.encode({QueueKey("z", 3): 5, ORDERS: 1234, QueueKey("a", 20): 0}))
    assert (
        text == f'{{"group": "g", "pos": {{"%2F/a#20": 0, "{KEY}": 1234, "%2F/z#3": 5}}, "v": 1}}'
    )
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert text == json.dumps(
        FORMAT.encode({QueueKey("a", 20): 0, QueueKey("z", 3): 5, ORDERS: 1234})
    )


def test_offsets_come_back_from_any_order_of_keys() -> None:
    """An offset with its keys in another order decodes: people may edit a checkpoint by hand."""
    shuffled = {"v": 1, "pos": {"%2F/z#3": 5, KEY: 1234}, "group": "g"}
    assert FORMAT.decode(shuffled) == {ORDERS: 1234, QueueKey("z", 3): 5}
    assert json.dumps(FORMAT.encode(FORMAT.decode(shuffled))) != json.dumps(shuffled)


def test_names_that_are_not_utf_8_come_back() -> None:
    """Names that are not UTF-8 survive encoding; people and columns see replaced characters."""
    key = queue_key(b"a\xff", 3)
    assert FORMAT.decode(json.loads(json.dumps(FORMAT.encode({key: 1})))) == {key: 1}
    assert str(key) == "'a\ufffd' (incarnation 3)"


def test_a_queue_of_a_cluster_is_named_by_its_birth() -> None:
    """Every node that may become its home has the same; a number of a lone node is another key."""
    key = queue_key(b"q", 40, "n1", birth=40)
    encoded = FORMAT.encode({key: 5, QueueKey("q", 40): 6, QueueKey("q", 40, "n1"): 7})
    assert encoded["pos"] == {"%2F/q#40": 6, "%2F/q#40@n1": 7, "%2F/q#b40": 5}
    assert FORMAT.decode(encoded)[key] == 5 and len(FORMAT.decode(encoded)) == 3


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ({"group": "g", "pos": {KEY: 1}, "v": 2}, "version 2"),
        ({}, "not one of this source"),
        ({"pos": 5, "spool": "00", "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {KEY: 1 << 63}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {"%2F/q#" + "9" * 5000: 1}, "v": 1}, "not one of this source"),
        ({"group": "h", "pos": {KEY: 1}, "v": 1}, "reader group 'h'"),
        ({"group": "g", "pos": {"other/q#17": 1}, "v": 1}, "vhost 'other'"),
        ({"group": "g", "pos": {KEY.removesuffix("#17"): 1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {KEY: True}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {KEY: -1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {"%2F/q#x": 1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": {"q#1": 1}, "v": 1}, "not one of this source"),
        ({"group": "g", "pos": [], "v": 1}, "not one of this source"),
    ],
)
def test_foreign_offsets_are_refused(offset: dict[str, object], text: str) -> None:
    """An offset of another group, vhost or version is refused."""
    with pytest.raises(OffsetError, match=text):
        FORMAT.decode(offset)
