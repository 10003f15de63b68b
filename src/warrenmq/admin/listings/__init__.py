"""The listings of the admin protocol: what `warrenctl list_*` shows.

`listing.py` has the table of all listings and checks a request; `columns.py` makes rows of columns,
and one module per family has the columns and finds the objects.
"""
