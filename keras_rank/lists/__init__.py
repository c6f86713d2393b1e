"""Turns what users pass into lists of items with labels, scores and relevance."""
