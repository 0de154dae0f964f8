"""Sets on disk: tar shards that are committed whole, and their codec."""
