"""Flow control: which clients may publish, which must wait, and which channel is served next.

`throttle.py` limits one connection; `alarms.py` and `disk_flow.py` switch these limits on and off.
They know connections and channels only through the interfaces in `client_socket.py` and
`flow_host.py`. `room.py` and `rotation.py` divide the room for deliveries among consumers.
"""
