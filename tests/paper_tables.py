"""Tables as the configuration has them."""

from __future__ import annotations

from functools import cache

import yaml

from cfaug.planning.build import build
from cfaug.run.table import TableSettings
from cfaug.settings.compose import compose_jobs
from tests.files_of_settings import settings_file


def table(name: str, **changes):
    return build(yaml.safe_load(settings_file(f"table/{name}").read_text()) | changes)


@cache
def table_node(name: str, *more: str) -> dict:
    """Return a table's settings; ``tests/test_conf.py`` composes those of every one."""
    text = settings_file(f"table/{name}").read_text()
    if not more and "defaults:" not in text and "${" not in text:
        return yaml.safe_load(text)
    [(config, _)] = compose_jobs(
        "table", [f"table={name}", *more], multirun=False, command=TableSettings
    )
    return config["table"]
