"""The machine that figures were taken on."""

import os
import platform

import psutil


def machine() -> str:
    """What the figures hold for."""
    memory = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, load {load:.2f}"
