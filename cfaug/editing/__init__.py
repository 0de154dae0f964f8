"""Caption editors and edit filters."""
