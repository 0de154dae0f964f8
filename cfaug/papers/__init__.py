"""The parts that belong to one paper, a folder each: mixtures, printed numbers and tables."""
