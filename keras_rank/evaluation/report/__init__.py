"""Reports: what people read of a table with a row for each list."""
