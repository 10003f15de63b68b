"""Which cases a run tries that no run of another commit tries: a number drawn from the commit's hash.

Random tests have two sets of cases: a fixed one, by which each change is judged as the change before it was, and one
that belongs to the commit, so that every landing explores something new and a failure comes back whenever that commit is
tested again. A tree that is no git checkout has no commit: `commit_number` is 0 there.
"""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# Seeds of the fixed set lie below; those of commits above.
FIRST_EXPLORED = 1 << 20


@cache
def commit_number() -> int:
    """A number of 32 bits that only this commit has, more or less."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return int(done.stdout[:8], 16) if done.returncode == 0 else 0


def explored_seeds(count: int) -> range:
    """`count` seeds of this commit."""
    start = FIRST_EXPLORED + commit_number()
    return range(start, start + count)
