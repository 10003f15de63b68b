"""A published message while its frames arrive.

`assembly.py` takes method, header and body in their order. `properties.py` reads the properties
that the broker needs from the header, `body.py` gathers the body.
"""
