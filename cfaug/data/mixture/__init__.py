"""The choice of training rows: exact mixtures, held-out sets, leaks."""
