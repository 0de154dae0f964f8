"""CFMM (Li et al., 2024): its printed numbers, its tables and figures."""
