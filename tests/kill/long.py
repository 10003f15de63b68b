"""`python -m tests.kill.long --kills 200`: the kill test under a load, for any duration.
The load is `mixed`, `dead-letters` or `delayed` (`--load`). Prints a line for each round and a
summary. A broken promise is reported; the directory stays, with the log, the data and a copy of the
data as the latest kill had left them; and the exit status is 1.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.delayed_kills import DelayedKills
from tests.support.kills.letter_kills import LetterKills
from tests.support.kills.mixed_kills import MixedKills
from warrenmq.build import build_name

LOADS = {"mixed": MixedKills, "dead-letters": LetterKills, "delayed": DelayedKills}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kill.long", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--load", choices=LOADS, default="mixed")
    parser.add_argument("--kills", type=int, default=200, metavar="N")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the load; what the machine does in between varies"
    )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where data lie (default: as tempfile)"
    )
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="warren-kill-", dir=options.directory))
    node = BrokerProcess(directory)
    kills = LOADS[options.load](node, options.seed)
    started = time.monotonic()

    def on_round(number: int) -> None:
        read = kills.done["read after starts"]
        print(
            f"{number}/{options.kills} kills, {read:,} messages read back, {time.monotonic() - started:.0f} s",
            flush=True,
        )

    try:
        kills.run(options.kills, on_round)
        reached = kills.reached()
        kills.finish()
    except BaseException as error:
        print(
            f"seed {options.seed}, after {kills.done['kills']} kills: {error!r}\n{directory} is kept",
            file=sys.stderr,
        )
        if not isinstance(error, Exception):
            raise
        return 1
    finally:
        node.kill()
    print(f"\nwarren {build_name()}, seed {options.seed}, {time.monotonic() - started:.0f} s")
    for name, count in {**kills.done, **reached}.items():
        print(f"{name:20} {count:>12,}")
    print(
        "nothing confirmed was lost, damaged, or doubled without a crash; nothing settled came back"
    )
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
