"""Giving back the pages of code that only the start runs."""

import subprocess
import sys

from warrenmq.server.resources.code_release import code_mappings

MAPPED = """\
7f0000000000-7f0000002000 r-xp 00001000 08:01 7 /usr/lib/libone.so
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f0000002000-7f0000003000 r--p 00003000 08:01 7 /usr/lib/libone.so
Rss:                   4 kB
Anonymous:             4 kB
7f0000003000-7f0000004000 rw-p 00004000 08:01 7 /usr/lib/libone.so
Rss:                   4 kB
Anonymous:             0 kB
7f0000004000-7f0000007000 r--p 00000000 08:01 9 /usr/lib/lib two.so (deleted)
Rss:                   4 kB
Anonymous:             0 kB
7f0000007000-7f0000008000 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
7f0000008000-7f0000009000 r--p 00000000 00:00 0
Anonymous:             0 kB
"""
RELEASED = """
import decimal, json, sqlite3, ssl
from warrenmq.server.resources.code_release import release_code
from warrenmq.server.resources.memory_watch import ResidentMemory
memory = ResidentMemory()
before = memory.used_bytes()
release_code()
after = memory.used_bytes()
assert json.loads("[1]") == [1] and sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
print(before - after)
"""


def test_only_what_its_file_still_has_is_given_back() -> None:
    assert code_mappings(MAPPED) == [(0x7F0000000000, 0x2000), (0x7F0000004000, 0x3000)]


def test_a_process_is_smaller_and_runs_on() -> None:
    done = subprocess.run([sys.executable, "-c", RELEASED], capture_output=True, check=True)
    # Python's own code alone has more.
    assert int(done.stdout) > 2 << 20
