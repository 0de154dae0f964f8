"""What the record of a folder says of a world."""

from __future__ import annotations
