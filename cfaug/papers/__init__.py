"""What only one paper knows: its mixtures, printed numbers and tables. One folder a paper."""
