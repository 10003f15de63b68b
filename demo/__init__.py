"""The main job on real input: the Python standard library through a broker and a Spark driver that both get killed.

`make demo` runs it. `story.py` is what happens, in order; `__main__.py` the frame around it: options, the temporary
directory, and the end of everything that was started. The demo is a client like any other: of warren itself it uses the
command `warren server`, the Spark format, and the admin client to ask how a reader group stands.
"""
