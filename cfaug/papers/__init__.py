"""What is specific to one paper: its mixtures, printed numbers and tables. One folder per paper."""
