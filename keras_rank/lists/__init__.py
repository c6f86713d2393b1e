"""Lists of items with labels, scores and relevance, converted from user arguments."""
