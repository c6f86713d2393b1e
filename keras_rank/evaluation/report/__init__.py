"""Reports: what people read, computed from a table with one row per list."""
