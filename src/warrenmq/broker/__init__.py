"""The broker: connections and channels as state machines, their vhosts, and stored definitions.

Bytes and the time go in, bytes and flags come out; sockets and threads are in `server/`. This
package may import wire, routing, store and queues. Start with `connection/`, then `channel/`, then
`vhost/`; ARCHITECTURE.md lists all folders in their import order.
"""
