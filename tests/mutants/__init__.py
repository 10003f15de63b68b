"""Facts about storage that are broken on purpose, to see whether the test that names them fails.

`table.py` has the mutants, `python -m tests.mutants` runs them, `test_table.py` keeps the table in step with the sources.
"""
