"""The tiny language models of real captions: how they are trained, in minutes on one core."""
