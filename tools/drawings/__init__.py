"""Drawings for README.md and docs/: SVG files in docs/pictures, made of what the pages say.

    python -m tools.drawings

`make docs` and `make pictures` draw them anew. Never edit a picture.
"""
