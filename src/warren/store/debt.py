"""What the disk holds for a store beyond what it should; `figures.py` says how that is counted."""

from mypy_extensions import i64


class Debt:
    """The debt of a store, counted now and then. In bytes."""

    def __init__(self) -> None:
        # As far as it is payable.
        self.payable_bytes: i64 = 0
        # What of that the disk has grown by since it was at its lowest in this debt.
        self.grown_bytes: i64 = 0
        self._lowest_bytes: i64 = 0

    def update(self, payable_bytes: i64, disk_bytes: i64) -> None:
        """So much is payable now, and so much is on the disk in all (not looked at without debt)."""
        before = self.payable_bytes
        self.payable_bytes = payable_bytes
        if payable_bytes == 0:
            self.grown_bytes = 0
            return
        if before == 0 or disk_bytes < self._lowest_bytes:
            self._lowest_bytes = disk_bytes
        self.grown_bytes = min(payable_bytes, disk_bytes - self._lowest_bytes)
