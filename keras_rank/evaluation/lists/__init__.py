"""Lists: rows that are sorted by query become a row for each list."""
