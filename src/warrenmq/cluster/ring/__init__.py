"""The ring of a mirrored queue: what one member broadcasts reaches all others, in its order.

It is guaranteed multicast as in gm, the module of the same purpose in RabbitMQ. The parts build on
each other in this order; bytes and views go in, bytes and events come out, and nothing here does
I/O or knows what the messages mean:

* `view.py`: who is in the ring, and who is whose neighbour
* `frames.py`: what neighbours send each other, as bytes
* `sender_log.py`: what a member knows of the broadcasts of one sender
* `member.py`: one member; its docstring explains the algorithm
"""
