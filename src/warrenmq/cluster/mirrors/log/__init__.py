"""What is told of mirrored queues: log lines, many of them in one line, and internal events.

Imports nothing else of the mirrors. Start with `mirror_log.py`.
"""
