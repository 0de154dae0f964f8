"""cfaug: does counterfactual data help a vision-language model, and can the answer be trusted?

The public functions are loaded when they are first used, so that ``import cfaug`` is quick.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

PUBLIC = {
    "AnswerModule": "cfaug.train.generative_modules",
    "ClassificationModule": "cfaug.train.classification_module",
    "Comparison": "cfaug.run.compare",
    "ContrastiveModule": "cfaug.train.contrastive_module",
    "CounterfactualDataModule": "cfaug.run.lightning",
    "EntailmentModule": "cfaug.train.classification_module",
    "Index": "cfaug.data.index",
    "Mixture": "cfaug.data.mixture.records",
    "Result": "cfaug.report.results",
    "Run": "cfaug.report.records",
    "UserError": "cfaug.core.errors",
    "annotate": "cfaug.run.api",
    "compare": "cfaug.run.api",
    "evaluate": "cfaug.run.api",
    "fine_tune": "cfaug.run.api",
    "generate_sets": "cfaug.run.api",
    "mix": "cfaug.run.api",
    "open_source": "cfaug.run.api",
    "read_run": "cfaug.run.api",
    "table": "cfaug.run.api",
}
"""The module of every public name."""

__all__ = ["__version__", *PUBLIC]  # each is loaded on first use


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'cfaug' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
