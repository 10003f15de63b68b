"""`python -m tests.fuzz READER... --minutes N [--seed S]`: damaged inputs for readers of bytes.

Prints a line for each reader: inputs, how many were accepted, the largest share of the memory
bound, and findings. Input NUMBER of a seed is repeated by `--seed S --input NUMBER`. The inputs of
findings go to build/fuzz/findings. A reader that hangs ends the run after HANG_S with a traceback;
the number of its input is in build/fuzz/current. `http` sends whole requests to a node that it
starts: no reply may be a 5xx. The exit status is 1 when there are findings.
"""

import argparse
import faulthandler
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.fuzz.campaign import CORPUS, Campaign, Finding, Outcome, Reader, corpus_of, made_input
from tests.fuzz.http_readers import request_reader
from tests.fuzz.readers import READERS
from tests.support.brokers.http_api import HttpNode
from warrenmq.build import build_name

HANG_S: Final = 60
PLACE: Final = Path("build/fuzz")
HTTP: Final = "http"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*READERS, HTTP]
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"{', '.join(names)} (all)")
    parser.add_argument("--minutes", type=float, default=1, metavar="N", help="for each reader")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="(default: the time)")
    parser.add_argument("--input", type=int, metavar="NUMBER", help="feed this one alone")
    options = parser.parse_args()
    if unknown := set(options.readers) - set(names):
        parser.error(f"no such reader: {', '.join(sorted(unknown))}")
    PLACE.mkdir(parents=True, exist_ok=True)
    print(f"warren {build_name()}, seed {options.seed}", flush=True)
    has_failed = False
    for name in options.readers or names:
        with _reader_of(name) as (reader, corpus):
            if options.input is not None:
                data = made_input(reader, corpus, options.seed, options.input)
                print(f"{name}: {data!r}", flush=True)
                reader.read(data)
                continue
            outcome = _run(name, reader, corpus, options.seed, options.minutes * 60)
        _report(name, options.seed, outcome)
        has_failed = has_failed or bool(outcome.findings)
    return 1 if has_failed else 0


@contextmanager
def _reader_of(name: str) -> Iterator[tuple[Reader, list[bytes]]]:
    if name != HTTP:
        yield READERS[name], corpus_of(name)
        return
    directory = Path(tempfile.mkdtemp(prefix="warren-fuzz-"))
    node = HttpNode(directory)
    node.start()
    try:
        with node.client() as client:
            yield request_reader(client), http_corpus()
    finally:
        node.stop()
        shutil.rmtree(directory)


def http_corpus() -> list[bytes]:
    """The requests, which are in one file."""
    return msgspec.msgpack.decode((CORPUS / HTTP / "requests").read_bytes(), type=list[bytes])


def _run(name: str, reader: Reader, corpus: list[bytes], seed: int, seconds: float) -> Outcome:
    campaign = Campaign(reader, corpus, seed)
    current = os.open(PLACE / "current", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    end = time.monotonic() + seconds
    number = 0
    # Time at which the limit for one input (HANG_S) was last started anew.
    watched = 0.0
    try:
        while (now := time.monotonic()) < end:
            if now - watched > 1:
                watched = now
                faulthandler.dump_traceback_later(HANG_S, exit=True)
            os.pwrite(current, f"{name} --seed {seed} --input {number}\n".encode(), 0)
            campaign.run(number)
            number += 1
    finally:
        faulthandler.cancel_dump_traceback_later()
        campaign.close()
        os.close(current)
    return campaign.outcome


def _report(name: str, seed: int, outcome: Outcome) -> None:
    print(
        f"{name:20} {outcome.inputs:>9,} inputs, {outcome.accepted:>9,} accepted, "
        f"{outcome.share_of_bound:4.0%} of the memory bound, {len(outcome.findings)} findings",
        flush=True,
    )
    kinds: dict[str, Finding] = {}
    for finding in outcome.findings:
        kinds.setdefault(finding.kind, finding)
    for kind, finding in kinds.items():
        path = PLACE / "findings" / f"{name}-{seed}-{finding.number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(finding.data)
        print(f"  {kind}: {finding.reason[:300]}\n  {path}", flush=True)
        if finding.error is not None:
            traceback.print_exception(finding.error, limit=-6, file=sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
