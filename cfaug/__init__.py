"""cfaug: does counterfactual data help a vision-language model, and can the answer be trusted?"""

__version__ = "0.1.0"
