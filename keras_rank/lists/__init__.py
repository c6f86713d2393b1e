"""What users pass, as lists of items with labels, scores, weights and relevance."""
