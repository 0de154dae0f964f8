"""The top floor: from a command line to a run with an identity; the only floor with Hydra."""
