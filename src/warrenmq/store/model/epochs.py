"""The epochs of a queue: a cluster numbers its decisions who leads the queue, and counts up.

A table of epochs says with which seq id each one began, so two copies of a queue can find where
they differ: at the start of the first epoch that one of them does not know. Epoch 0 is that of a
queue which no cluster has decided about, and has no row.
"""

from mypy_extensions import i64

# Rows (epoch, first seq id), ascending in both.
Epochs = list[tuple[i64, i64]]


def add_epoch(epochs: Epochs, epoch: i64, first_seq: i64) -> None:
    """Add the row of `epoch` at its place, unless it is there already."""
    place: i64 = len(epochs)
    while place > 0 and epochs[place - 1][0] > epoch:
        place -= 1
    if place == 0 or epochs[place - 1][0] < epoch:
        epochs.insert(place, (epoch, first_seq))


def epoch_of(epochs: Epochs, seq: i64) -> i64:
    """The epoch in which the message `seq` was published; 0 before the first row."""
    place: i64 = len(epochs)
    while place > 0 and epochs[place - 1][1] > seq:
        place -= 1
    return epochs[place - 1][0] if place > 0 else 0
