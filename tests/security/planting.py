"""What somebody plants who hands over a folder, and how it is noticed that it ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError

CODE = """
from pathlib import Path
Path({marker!r}).touch()
class Evil:
    pass
"""


@dataclass
class Trap:
    """A marker that planted code leaves when it runs."""

    marker: Path

    def plant(self, folder: Path, name: str = "evil.py") -> None:
        """Write code into a folder that touches the marker as soon as it is imported."""
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CODE.format(marker=str(self.marker)))

    def fires(self, call: Callable[[], Any]) -> bool:
        """Say whether planted code ran in a call, whatever came of the call."""
        self.marker.unlink(missing_ok=True)
        with suppress(Exception):
            call()
        ran = self.marker.exists()
        self.marker.unlink(missing_ok=True)
        return ran

    def holds(self, call: Callable[[], Any]) -> str:
        """Return what our loader said, "" if it loaded; nothing planted ran and nothing is advised.

        Anything but a ``UserError`` fails the test.
        """
        said = ""
        try:
            call()
        except UserError as error:
            said = str(error)
        assert not self.marker.exists(), "planted code ran"
        assert "trust_remote_code=True" not in said
        return said


def edit(file: Path, **changes: Any) -> None:
    """Change keys of a JSON file, made if it is missing; ``...`` removes one."""
    content = json.loads(file.read_text()) if file.exists() else {}
    content |= changes
    file.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
