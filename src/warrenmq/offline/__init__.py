"""Tools for data directories without a node: check, report, salvage, backup, restore, create.

No tool writes into the directory that it reads; restore, salvage and `store_writer.py` make new
directories. The command line prints the results. May import: admin and everything below it. Start
with `data_directory.py`.
"""
