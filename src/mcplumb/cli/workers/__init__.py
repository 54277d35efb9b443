"""``mcplumb serve --workers``: several processes at one address, and the one that supervises them."""
