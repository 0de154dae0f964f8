"""CFMM: basic and counterfactual questions about images."""
