"""`python -m warrenmq` is the `warren` command."""

from warrenmq.cli import main

main()
