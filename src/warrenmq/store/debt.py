"""The debt of a store: the space it takes beyond what it should. `figures.py` says how that is counted."""

from mypy_extensions import i64


class Debt:
    """A count that is renewed now and then. In bytes."""

    def __init__(self) -> None:
        # Space that rewriting and compaction can win back.
        self.payable_bytes: i64 = 0
        # Of that, the growth of the disk since its lowest in this debt.
        self.grown_bytes: i64 = 0
        self._lowest_bytes: i64 = 0

    def update(self, payable_bytes: i64, disk_bytes: i64) -> None:
        """Renew the count. `disk_bytes` is the size of the whole store; without debt it does not matter."""
        before = self.payable_bytes
        self.payable_bytes = payable_bytes
        if payable_bytes == 0:
            self.grown_bytes = 0
            return
        if before == 0 or disk_bytes < self._lowest_bytes:
            self._lowest_bytes = disk_bytes
        self.grown_bytes = min(payable_bytes, disk_bytes - self._lowest_bytes)
