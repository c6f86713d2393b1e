"""The equations: from lists and their order to one value per list."""
