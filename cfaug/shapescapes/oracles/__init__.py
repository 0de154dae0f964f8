"""What the embedded world's ground truth says of each method."""
