"""The commands ``train``, ``generate`` and ``evaluate``, as scripts and as ``cfaug train``."""
