"""Put ``conf/`` and ``sweeps/`` into the wheel as ``cfaug/conf`` and ``cfaug/sweeps``.

They stand at the top level of the repository. An editable installation reads them there, so it
gets no copy, which would grow old.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackageSettings(BuildHookInterface):
    """Called by hatchling before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folders.

        Args:
            version: ``standard``, or ``editable``.
            build_data: what is built; ``force_include`` maps a path to its place in the wheel.
        """
        if version == "standard":
            for name in ("conf", "sweeps"):
                build_data["force_include"][name] = f"cfaug/{name}"
