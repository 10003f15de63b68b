"""Messages that leave one queue and enter others: dead letters and delayed messages.

May import: remote, and the queues of the vhost. Start with `handovers.py`.
"""
