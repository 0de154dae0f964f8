"""Lists in a cell of a table, as printed by Python or JSON: parsed, never executed."""

from __future__ import annotations

import ast
import re

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import require_unicode

LONGEST_CELL = 2**20
"""Maximum number of characters in a cell: a longer one is not a list of names."""

_STRING = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
# Possessive quantifiers (*+, ?+) avoid backtracking: a cell of a million spaces is refused at once.
_LIST = re.compile(rf"\s*+\[\s*+(?:(?:{_STRING})\s*+(?:,\s*+(?:{_STRING})\s*+)*+,?+\s*+)?+\]\s*+")
_ITEM = re.compile(_STRING)


def is_list_of_texts(cell: object) -> bool:
    """Return whether a cell begins and ends like a list, or is already one, as in JSON.

    >>> is_list_of_texts("['a']"), is_list_of_texts(["a"]), is_list_of_texts("a dog")
    (True, True, False)
    """
    if isinstance(cell, list):
        return all(isinstance(one, str) for one in cell)
    return isinstance(cell, str) and cell.strip()[:1] == "[" and cell.strip()[-1:] == "]"


def read_texts(cell: object, where: str) -> list[str]:
    r"""Return the texts of a flat list, printed in a cell of a csv or read from JSON.

    Each text is one string literal, and nothing else is allowed between the brackets.

    Args:
        cell: the cell: a text, or a list from JSON.
        where: the place of the cell, for errors.

    Raises:
        UserError: if the cell is not such a list, or a text is not Unicode, naming ``where``.

    >>> read_texts("['dog', \"dog's tail\", ]", "line 2")
    ['dog', "dog's tail"]
    """
    if isinstance(cell, list) and all(isinstance(one, str) for one in cell):
        return list(cell)
    if isinstance(cell, str) and len(cell) <= LONGEST_CELL and _LIST.fullmatch(cell):
        try:
            texts = [str(ast.literal_eval(found.group())) for found in _ITEM.finditer(cell)]
            return [require_unicode(text, where) for text in texts]
        except (ValueError, SyntaxError) as error:  # for an invalid escape
            raise UserError(f"{where}: {cell[:80]!r} is not a list of texts: {error}") from error
    raise UserError(
        f"{where} should be a list of texts in quotes, as in ['dog', 'fire hydrant'], not "
        f"{str(cell)[:80]!r}; nothing of a cell is run"
    )
