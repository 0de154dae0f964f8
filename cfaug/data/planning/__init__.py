"""Which rows are trained on: exact mixtures, held-out sets, leaks."""
