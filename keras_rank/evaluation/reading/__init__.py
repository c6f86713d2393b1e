"""Reading: files, tables and dicts become rows sorted by query."""
