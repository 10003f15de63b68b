"""The job `compare-mirrors`: the copies of a mirrored queue, message by message."""
