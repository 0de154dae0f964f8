"""Fine-tuning: settings, loss, Lightning module, exact resume."""
