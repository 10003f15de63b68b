"""Flow control: which clients may publish, which must wait, and which channel is served next.

`throttle.py` limits one connection; `alarms.py` and `disk_flow.py` switch these limits on and off.
They know a connection only as a `ThrottleHost`, and a channel only as a `FlowHost`. `room.py` and
`rotation.py` divide the room for deliveries among consumers.
"""
