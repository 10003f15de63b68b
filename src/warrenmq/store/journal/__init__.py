"""The journal of a vhost: group commit, what a batch contains, and when a journal file may go.

May import: model, records, contents. Start with `journal.py`.
"""
