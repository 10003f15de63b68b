"""A broker process whose disk fails on command: `sitecustomize` puts itself between the store and the system calls.

A file named like the call, in the directory of faults, makes each such call fail with the error number in it, or, when it
starts with `sleep`, take that many seconds, or, when it says `hang`, wait for as long as it says so. What must not wait for
the disk is tried while it hangs: how long anything takes says nothing on a busy machine. The calls that meet with a fault
are counted.
"""

import os
from pathlib import Path

import pytest

_SITECUSTOMIZE = """
import os, time
from warrenmq.store.disk import local_file_system

FAULTS = {faults!r}

class FailingOs:
    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("pwritev", "fdatasync", "open"):
            return real
        def call(*arguments):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments)
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
            return real(*arguments)
        return call

def fault_of(name):
    try:
        with open(FAULTS + "/" + name) as file:
            return file.read()
    except FileNotFoundError:
        return ""

local_file_system.os = FailingOs()
"""


class FailingDisk:
    """The faults that brokers started from now on suffer from."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._faults = directory / "faults"
        self._faults.mkdir()
        site = directory / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(faults=str(self._faults)))
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    def fail(self, call: str, number: int) -> None:
        """From now on."""
        self._put(call, str(number))

    def slow(self, call: str, seconds: float) -> None:
        """From now on."""
        self._put(call, f"sleep{seconds}")

    def hang(self, call: str) -> None:
        """From now on, until another fault takes its place or the disk is healed."""
        self._put(call, "hang")

    def calls(self, call: str) -> int:
        """How many calls have met with a fault so far, those that still hang among them."""
        path = self._faults / f"{call}.calls"
        return path.stat().st_size if path.exists() else 0

    def heal(self, *calls: str) -> None:
        """All is well again, or these calls are."""
        for path in self._faults.iterdir():
            if path.suffix != ".calls" and (not calls or path.name in calls):
                path.unlink()

    def _put(self, call: str, text: str) -> None:
        # In one step: the broker reads it at any moment.
        new = self._faults / "new"
        new.write_text(text)
        new.rename(self._faults / call)
