"""Human annotation of pairs: the page that asks, the answers read back, what they say."""
