"""The records in the files of the store: their bytes, encoded and decoded.

`record.py` has the frame of every record and the header of every file; the others have the records
of one kind of file each. May import: model. Start with `record.py`.
"""
