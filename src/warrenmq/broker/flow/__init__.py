"""Flow control: who may publish, who has to wait, and which channel is served next.

`throttle.py` has the brakes of one connection, `alarms.py` and `disk_flow.py` apply them; they know connections and channels
only as `client_socket.py` and `channel_side.py`. `room.py` and `rotation.py` divide the room of sockets among channels.
"""
