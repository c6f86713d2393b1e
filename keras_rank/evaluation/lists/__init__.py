"""Lists: rows sorted by query become one row per list."""
