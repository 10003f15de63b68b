"""`python -m warren` is the `warren` command."""

from warren.cli import main

main()
