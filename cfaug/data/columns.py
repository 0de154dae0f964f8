"""Which column of a list says what, by the names that people give them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cfaug.errors import UserError


def one_column(
    names: Iterable[str], wanted: Sequence[str], what: str, where: str = ""
) -> str | None:
    """Return the only one of ``names`` that is ``wanted``, or ``None``.

    Args:
        names: of the columns there are.
        wanted: usual names, lower case.
        what: the column holds, for the message.
        where: the columns are, for the message.

    Raises:
        UserError: if there are several, for nothing says which is meant.
    """
    found = [name for name in names if name.lower() in wanted]
    if len(found) > 1:
        raise UserError(
            f"{where}: {', '.join(found)} could each be the {what}; keep one under such a name, "
            "and rename or remove the others"
        )
    return found[0] if found else None
