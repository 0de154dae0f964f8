"""The top floor: from a command line to a run with an identity. Only this floor imports Hydra."""
