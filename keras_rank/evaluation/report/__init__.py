"""Reports for people, computed from a table with one row per list."""
