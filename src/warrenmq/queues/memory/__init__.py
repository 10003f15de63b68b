"""The memory that messages take: accounts, rates, and which queues must page.

Knows messages as numbers of bytes only. May import nothing of the other rooms but `turn.py`. Start
with `account.py`, then `monitor.py`.
"""
