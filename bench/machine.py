"""A description of the machine, for the head of reports."""

import os
import platform

import psutil


def machine() -> str:
    """Return cores, memory, system and load average of this machine in one line."""
    memory = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, load {load:.2f}"
