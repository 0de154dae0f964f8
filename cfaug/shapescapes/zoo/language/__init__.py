"""The tiny language models of real captions, and their training, in minutes on one core."""
