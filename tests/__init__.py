"""A package of its own name: some distributions install one called tests, too."""
