"""Make golden backups, which every later version must restore.

`python -m tests.golden.backups.make NAME` fills a node with a few messages, backs its directory up
with both commands, and writes `NAME.tar.xz` with the backups, and `NAME.json` with what a restore
of each holds. The program runs once for a format of either; the files never change.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden.backups.restoring import COMMANDS, restored
from tests.golden.reading import SETTINGS, digest
from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren
from tests.support.kills.ledger import Confirms, connect

HERE = Path(__file__).parent
MESSAGES = 40


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = BrokerProcess(Path(directory), *SETTINGS)
        node.start()
        channel = connect(node).channel()
        confirms = Confirms(channel)
        channel.declare(b"classic", durable=True)
        channel.declare(b"lazy", durable=True, arguments=table(x__queue__mode="lazy"))
        channel.exchange(b"fan", b"fanout", durable=True)
        known = []
        for queue in (b"classic", b"lazy"):
            channel.bind(queue, b"fan")
        for number in range(MESSAGES):
            body = b"%d " % number * (1, 30, 3000)[number % 3]
            confirms.publish(b"key", body, PERSISTENT, b"fan", lambda: None)
            known.append((b"fan", b"key", PERSISTENT, body, False))
        confirms.drain()
        node.stop()
        data = node.directory / "data"
        kept = Path(directory, "kept")
        kept.mkdir()
        for kind, (command, _) in COMMANDS.items():
            done = warren(*command, kept / kind, "--data-dir", data)
            assert done.returncode == 0, done.stderr
        with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(kept, ".")
        expected = {kind: restored(kind, kept / kind, Path(directory, kind)) for kind in COMMANDS}
        for found in expected.values():
            assert set(found["queues"].values()) == {digest(known)}
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
