"""`make demo-cluster`: a mirrored queue on three nodes under faults, judged, and drawn.

Start with `story.py`. `nodes.py` has the processes, `networks.py` the places in which they run and
are parted, `picture.py` what is drawn of the confirms.
"""
