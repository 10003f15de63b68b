"""All readers by name, but that of HTTP requests, which needs a node (`http_readers`)."""

from tests.fuzz import cluster_readers, engine_readers, http_readers, store_readers, table_readers
from tests.fuzz.campaign import Reader

READERS: dict[str, Reader] = {
    **engine_readers.READERS,
    **cluster_readers.READERS,
    **store_readers.READERS,
    **table_readers.READERS,
    **http_readers.READERS,
}
