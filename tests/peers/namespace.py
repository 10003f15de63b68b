"""A network namespace for each run: a loopback of its own, so that the ports are those of the docs.

The suites connect to localhost:5672. In a namespace of its own a run has that port, whatever else
the machine serves, and reaches nothing outside.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from typing import Final

# linux/sockios.h and linux/if.h.
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1


def inside(command: list[str]) -> list[str]:
    """`command` in a new network namespace; an ordinary user gets a user namespace for that."""
    as_user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_user, "--net", *command]


def why_not() -> str:
    """Why this machine makes no namespaces, or ""."""
    if shutil.which("unshare") is None:
        return "the command unshare (of util-linux) is not installed"
    done = subprocess.run(inside(["true"]), capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no network namespace: {done.stderr.strip()}"


def raise_loopback() -> None:
    """Set the loopback interface of this process's namespace up; it is down at first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _IFF_UP))
