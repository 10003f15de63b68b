"""Both stores that the definitions of a cluster can be in: a real etcd, and warren's own."""

from collections.abc import Iterator

import pytest

from tests.support.etcd import EtcdServer
from tests.support.key_store import ServedKeyStore, served_key_store
from warrenmq.cluster.metadata.gateway import EtcdGateway


@pytest.fixture(scope="session")
def key_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedKeyStore]:
    """A store of one machine that all tests share."""
    with served_key_store(tmp_path_factory.mktemp("key_store") / "keys.sqlite") as served:
        yield served


@pytest.fixture(params=["etcd", "key_store"])
def gateway(request: pytest.FixtureRequest) -> Iterator[EtcdGateway]:
    """A client of the one store or the other."""
    store: EtcdServer | ServedKeyStore = request.getfixturevalue(request.param)
    client = store.gateway() if isinstance(store, ServedKeyStore) else EtcdGateway([store.url])
    yield client
    client.close()
