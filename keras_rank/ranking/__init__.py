"""Rankings of lists by scores, with several treatments of ties."""
