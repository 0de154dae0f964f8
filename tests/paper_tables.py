"""Tables as the configuration has them."""

from __future__ import annotations

import yaml

from cfaug.planning.build import build
from tests.settings import settings_file


def table(name: str, **changes):
    return build(yaml.safe_load(settings_file(f"table/{name}").read_text()) | changes)
