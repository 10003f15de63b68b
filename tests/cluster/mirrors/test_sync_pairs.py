"""A mirror that is synchronised equals its master, however much it had before."""

import pytest

from tests.cluster.mirrors.synced_pair import Pair
from warrenmq.cluster.mirrors import sync_source


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(sync_source, "READ_BYTES", 2000)


def test_an_empty_mirror_gets_everything() -> None:
    pair = Pair()
    pair.publish(200)
    taken = pair.take(30)
    pair.ack(taken[:10])
    pair.requeue(taken[10:20])
    pair.join()
    pair.synchronise()
    assert pair.synced_count == 1
    assert len(pair.assert_equal()) == 190
