"""The words of the store: messages, their positions in queues, sets of seq ids.

Plain data and its arithmetic, without bytes: `runs.py` has the sets, `message.py` a content and
its position, `queue_index.py` the segments of a queue with their live entries. May import nothing
of the other rooms. Start with `message.py`.
"""
