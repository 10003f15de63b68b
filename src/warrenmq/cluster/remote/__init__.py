"""Queues of this node in use by the clients of another node: the other end of a `RemoteSession`.

It imports from `broker` and below. Start reading at `remote_clients.py`; the formats of the frames
are in `queues/remote/link_records.py`.
"""
