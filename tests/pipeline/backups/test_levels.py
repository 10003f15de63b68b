"""Priority queues and delayed messages: a store keeps both under ids that no queue's name has.

Each level of a priority queue has an id of its own in the store, and so has each bucket of delayed
messages. Tables, backups and restores have them all.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tests.pipeline.test_verify import must_agree
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect
from tests.support.kills.mixed_vhost import (
    SETTINGS,
    TRANSIENT,
    Expected,
    MixedVhost,
    contents_of,
    new_vhost,
)
from tests.support.spark.inline import InlineSpark
from tests.support.stores.made_backups import run_backup, run_restore
from warrenmq.offline.report import report_directory
from warrenmq.pipeline import restore_live
from warrenmq.pipeline.replays import local
from warrenmq.pipeline.reports.figures import store_figures
from warrenmq.tables.data_files import DATA_SCHEMA
from warrenmq.tables.parts import ReadOptions
from warrenmq.tables.planning import plan
from warrenmq.tables.queue_states import vhost_state
from warrenmq.tables.reading import read
from warrenmq.wire.properties import Properties

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

HOUR_MS = 3_600_000


@dataclass
class Made:
    """The data directory of a killed node, and what its queues and its delayed exchange have."""

    data: Path
    queues: dict[bytes, list[Expected]]
    delayed: int


def delayed(ms: int, delivery_mode: int = 2) -> bytes:
    return Properties(delivery_mode=delivery_mode, headers=table(x__delay=ms)).encode()
