"""The debt of a store: the disk space it takes beyond its allowance; `figures.py` counts it."""

from mypy_extensions import i64


class Debt:
    """The last count of a store's debt, in bytes; `update` renews it now and then."""

    def __init__(self) -> None:
        # Bytes of the debt that the store is about to free by itself.
        self.payable_bytes: i64 = 0
        # Growth of the store on disk since `_lowest_bytes`, at most `payable_bytes`.
        self.grown_bytes: i64 = 0
        # The smallest size of the store on disk since this debt began.
        self._lowest_bytes: i64 = 0

    def update(self, payable_bytes: i64, disk_bytes: i64) -> None:
        """Renew the count; the store's size `disk_bytes` matters with payable bytes only."""
        before = self.payable_bytes
        self.payable_bytes = payable_bytes
        if payable_bytes == 0:
            self.grown_bytes = 0
            return
        if before == 0 or disk_bytes < self._lowest_bytes:
            self._lowest_bytes = disk_bytes
        self.grown_bytes = min(payable_bytes, disk_bytes - self._lowest_bytes)
