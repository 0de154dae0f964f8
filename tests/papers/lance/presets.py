"""The paper's presets, for ``tests/run/test_preset.py``."""

from __future__ import annotations

PERTURBER = {  # LANCE, Table 6; the experiment accumulates 32 batches
    "optim.lr": 3e-4, "optim.weight_decay": 0.0, "trainer.max_steps": 1172,
    "data.batch_size": 4,
}  # fmt: skip
PRESETS = {"lance_perturber": ("perturber", PERTURBER)}
