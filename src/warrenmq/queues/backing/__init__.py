"""The messages of one queue, in memory and on disk, behind one interface.

`variable_queue.py` keeps the ready messages (q1 q2 delta q3 q4), `paging.py` and `loading.py` move
them out of memory and back, `paged_queue.py` is what the queue sees of it all. May import: memory,
and what a message is to a queue (`entry.py`, `queue_host.py`). Start with `paged_queue.py`.
"""
