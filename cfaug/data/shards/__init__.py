"""Sets on disk: atomically committed tar shards, and their codec."""
