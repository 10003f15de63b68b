"""The seeds that only runs of this commit try, drawn from the commit's hash.

Random tests have two sets of cases. A fixed set judges each change as it judged the change before.
The other set belongs to the commit: every landing tries something new, and a failure returns
whenever that commit is tested again. A tree that is no git checkout has no commit: `commit_number`
is 0 there.
"""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# Seeds of the fixed set are below this number, seeds of commits above it.
FIRST_EXPLORED = 1 << 20


@cache
def commit_number() -> int:
    """A number of 32 bits from the commit's hash; 0 without a commit."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return int(done.stdout[:8], 16) if done.returncode == 0 else 0


def explored_seeds(count: int) -> range:
    """`count` seeds of this commit."""
    start = FIRST_EXPLORED + commit_number()
    return range(start, start + count)
