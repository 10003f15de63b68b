"""A broker process whose disk fails on command, by `sitecustomize` between store and system calls.

The directory of faults may have a file named like a call. The content of the file decides: an error
number makes each such call fail, `sleep` with a number makes it take that many seconds, `hang`
makes it wait as long as the file says so. Tests run what must not wait for the disk while the disk
hangs, since durations mean nothing on a busy machine. Calls that meet a fault are counted. A write
that syncs meets the faults of `pwritev`, then those of `fdatasync`. The kernel syncs nothing by
itself.
"""

import os
from pathlib import Path

import pytest

_SITECUSTOMIZE = """
import os, time
from warrenmq.store.disk import kernel_syncs, local_file_system

FAULTS = {faults!r}

class FailingOs:
    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("pwritev", "fdatasync", "open"):
            return real
        def call(*arguments):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments)
            meet(name)
            if name != "pwritev" or not arguments[3]:
                return real(*arguments)
            written = real(*arguments[:3])
            meet("fdatasync")
            os.fdatasync(arguments[0])
            return written
        return call

def meet(name):
    fault = fault_of(name)
    if fault:
        with open(FAULTS + "/" + name + ".calls", "a") as calls:
            calls.write(".")
    while fault == "hang":
        time.sleep(0.002)
        fault = fault_of(name)
    if fault.startswith("sleep"):
        time.sleep(float(fault[5:]))
    elif fault:
        raise OSError(int(fault), os.strerror(int(fault)))

def fault_of(name):
    try:
        with open(FAULTS + "/" + name) as file:
            return file.read()
    except FileNotFoundError:
        return ""

def refuse(syncs):
    raise OSError("its faults would not be met")

local_file_system.os = FailingOs()
kernel_syncs.KernelSyncs.__init__ = refuse
"""


class FailingDisk:
    """The faults of all brokers that start after this object was made."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._faults = directory / "faults"
        self._faults.mkdir()
        site = directory / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(faults=str(self._faults)))
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    def fail(self, call: str, number: int) -> None:
        """Make every `call` fail with errno `number`."""
        self._put(call, str(number))

    def slow(self, call: str, seconds: float) -> None:
        """Make every `call` take `seconds` longer."""
        self._put(call, f"sleep{seconds}")

    def hang(self, call: str) -> None:
        """Make every `call` wait until another fault replaces this one or `heal` ends it."""
        self._put(call, "hang")

    def calls(self, call: str) -> int:
        """The number of calls that have met a fault, including calls that still hang."""
        path = self._faults / f"{call}.calls"
        return path.stat().st_size if path.exists() else 0

    def heal(self, *calls: str) -> None:
        """End the faults of these calls; without arguments, all faults."""
        for path in self._faults.iterdir():
            if path.suffix != ".calls" and (not calls or path.name in calls):
                path.unlink()

    def _put(self, call: str, text: str) -> None:
        # Replace the file in one step, since the broker may read it at any moment.
        new = self._faults / "new"
        new.write_text(text)
        new.rename(self._faults / call)
