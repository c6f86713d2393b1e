"""The order of each list by its scores, and the handling of ties."""
