"""`warren service`: the node as a service of systemd.

The files that are installed lie beside the modules: the unit, the system user, the directories.
Start with `app.py`.
"""
