"""The indexes of the queues: segments written, read back, copied, and repaired after damage.

`queue_store.py` is what a queue asks of the store; the rest stands behind it. May import every
room but upkeep. Start with `queue_store.py`.
"""
