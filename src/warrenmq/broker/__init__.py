"""The broker: connections and channels as state machines, the vhosts they work in, the definitions they keep.

Bytes and the time go in, bytes and flags come out; sockets and threads are in `server/`. May import: wire, routing,
store, queues. Start with `connection/`, then `channel/`, then `vhost/`; ARCHITECTURE.md has the order of the rooms.
"""
