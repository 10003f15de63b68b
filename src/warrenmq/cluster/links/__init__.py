"""Node links: one authenticated TCP connection between every two nodes of a cluster.

The parts build on each other in this order, and all but the last do no I/O: bytes and the time go
in, bytes and events come out.

* `frames.py`: frames and chunks, cut out of a byte stream and put into one
* `handshake.py`: who the other node is, and why it may be refused
* `link.py`: one connection: handshake, frames by lane, heartbeats
* `links.py`: all links of a node: whom it dials and when, one link for each pair
* `tls.py`, `shell.py`: the sockets
"""
