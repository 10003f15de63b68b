"""What pages are made of: tables, charts, forms."""
