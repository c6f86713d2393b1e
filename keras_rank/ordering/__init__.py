"""The order of lists: the only place that decides ties, or names a backend."""
