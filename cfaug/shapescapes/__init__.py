"""The embedded world: drawn scenes whose perfect counterfactuals are known."""

from typing import TYPE_CHECKING, Any

from cfaug.shapescapes.settings import PROMPTS, WorldSettings

if TYPE_CHECKING:
    from cfaug.shapescapes.parts import ensure

__all__ = ["PROMPTS", "WorldSettings", "ensure"]


def __getattr__(name: str) -> Any:
    """Import rendering code lazily: settings of a world are needed much more often."""
    if name == "ensure":
        from cfaug.shapescapes.parts import ensure

        return ensure
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
