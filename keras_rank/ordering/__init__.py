"""The order of each list by its scores, and what ties mean."""
