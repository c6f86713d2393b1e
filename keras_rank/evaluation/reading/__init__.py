"""Reading: whatever users have becomes rows that are sorted by query."""
