"""LANCE (Prabhu et al., 2023): its printed numbers, its tables and figures."""
