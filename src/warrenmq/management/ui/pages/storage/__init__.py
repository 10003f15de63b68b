"""What no other broker shows: where messages are on the disk, and what the disk costs."""
