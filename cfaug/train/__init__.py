"""Fine-tuning: settings, loss, Lightning module, exact resume."""

from cfaug.train.lazy_torchmetrics import import_lazily

import_lazily()  # before Lightning is imported
