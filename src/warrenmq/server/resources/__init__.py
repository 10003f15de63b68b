"""Memory and disk space of the process: measured for the alarms, and memory given back.

Imports nothing else of the server. Start with `memory_watch.py`.
"""
