"""Tables as the configuration has them."""

from __future__ import annotations

from pathlib import Path

import yaml

from cfaug.planning.build import build

CONF = Path(__file__).parents[1] / "conf/table"


def table(name: str, **changes):
    return build(yaml.safe_load((CONF / f"{name}.yaml").read_text()) | changes)
