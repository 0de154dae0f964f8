"""Put ``conf/`` and ``sweeps/`` into the wheel as ``cfaug/conf`` and ``cfaug/sweeps``.

They are at the top level of the repository. An editable installation reads them there and gets no
copy, which would become outdated.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackageSettings(BuildHookInterface):
    """A build hook that hatchling calls before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders to the wheel.

        Args:
            version: the kind of build, ``standard`` or ``editable``.
            build_data: the build's settings; ``force_include`` maps a path to its place in the
                wheel.
        """
        if version == "standard":
            for name in ("conf", "sweeps"):
                build_data["force_include"][name] = f"cfaug/{name}"
