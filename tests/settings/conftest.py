"""Commands to compose and to run, as for the tests of commands."""

from tests.run.conftest import place, shards

__all__ = ["place", "shards"]
