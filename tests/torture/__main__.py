"""`python -m tests.torture --minutes N [--seed S]`: everything that hurts, in mixed order.

Each round is a command that exists by itself (`acts.py`): kills under load, disks that fail, frozen
nodes, cut links, etcd, clocks, Spark. They come shuffled, each once before any comes again. A line
is printed for each round, then a summary. The first round that fails ends the run with its output,
with the command that repeats it, and with the exit status 1. No round begins after N minutes.
"""

import argparse
import random
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.torture.acts import ACTS, Act
from warrenmq.build import build_name

# Longer than any round on a busy machine: one that hangs has failed.
ROUND_S = 1800
SEEDS = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60, metavar="N")
    parser.add_argument("--seed", type=int, help="of the order and of all rounds (by chance)")
    parser.add_argument("--only", default="", metavar="WORD", help="acts with WORD in their names")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(SEEDS) if options.seed is None else options.seed
    acts = []
    for act in ACTS:
        if options.only not in act.name:
            continue
        if missing := act.missing():
            print(f"left out: {act.name}: {missing}")
        else:
            acts.append(act)
    if not acts:
        parser.error("no act is left")
    print(f"warren {build_name()}, seed {seed}", flush=True)
    # SIGTERM ends the round under way, as ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    done: Counter[str] = Counter()
    for number, (act, round_seed) in enumerate(rounds(acts, seed), 1):
        if time.monotonic() - began >= options.minutes * 60:
            break
        if not run(number, act, round_seed):
            return 1
        done[act.name] += 1
    print(f"\n{sum(done.values())} rounds in {(time.monotonic() - began) / 60:.0f} minutes")
    for name, count in sorted(done.items()):
        print(f"{count:5}  {name}")
    if done:
        print("no confirmed message was lost or doubled")
    return 0


def rounds(acts: list[Act], seed: int) -> Iterator[tuple[Act, int]]:
    """The acts with their seeds, without end: each once in every shuffled deck."""
    chance = random.Random(seed)
    while True:
        for act in chance.sample(acts, len(acts)):
            yield act, chance.randrange(SEEDS)


def run(number: int, act: Act, seed: int) -> bool:
    """Run a round and print its line; its output only if it fails."""
    command = act.command(seed)
    began = time.monotonic()
    # A group of its own, so that a round that hangs ends with all that it has started there.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    try:
        output, _ = process.communicate(timeout=ROUND_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as ending:
        process.send_signal(signal.SIGINT)
        try:
            output, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        if isinstance(ending, KeyboardInterrupt):
            raise
    seconds = time.monotonic() - began
    is_good = process.returncode == 0
    state = "ok" if is_good else f"FAILED with {process.returncode}"
    print(f"{number:4}  {act.name:38} seed {seed:6}  {seconds:5.0f} s  {state}", flush=True)
    if not is_good:
        print(output[-8000:])
        print(f"repeat it by: {shlex.join(['python', *command[1:]])}", flush=True)
    return is_good


if __name__ == "__main__":
    sys.exit(main())
