"""Computation of a table with one row per list from rows sorted by query."""
