"""Building blocks of every page: escaping templates, data for scripts, small pictures."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.files import write_file

PACKAGE = Path(__file__).parents[1]
TEMPLATES = PACKAGE / "report" / "templates"
"""The common style, and the parts and pages that belong to no capability; a capability, or another
folder of the package, has pages of its own in its ``templates/``."""

GRID = 128
"""A picture with sides of at most this is a drawing whose pixels should be visible."""

QUALITY = 80

P_VALUE = re.compile(r"\bp (?:=|&lt;=|&lt;) [\d.]*\d(?:e-\d+)?|[\d.]+e-\d+")
"""A p-value with its name, escaped, or a number with an exponent."""


def render(template: str, **content: Any) -> str:
    """Return a page: a template with the common style; every string in it is escaped.

    Args:
        template: the name of a file in the ``templates/`` of any folder of the package.
        content: the variables of the template.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from cfaug.report.numbers import p_text, percent, points

    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, *sorted(PACKAGE.glob("*/templates"))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent, "points": points, "p": p_text, "unbroken": unbroken
    }  # fmt: skip
    sheets = (TEMPLATES / name for name in ("theme.css", "report.css"))
    style = Markup("".join(sheet.read_text(encoding="utf-8") for sheet in sheets))
    return environment.get_template(template).render(style=style, **content)


def unbroken(text: str) -> Markup:
    """Return an escaped sentence in which no line breaks within "p = 3.8e-4".

    >>> unbroken("a < b (p = 3.8e-4)")
    Markup('a &lt; b (<span class="unbroken">p = 3.8e-4</span>)')
    >>> unbroken("(p <= 0.05)")
    Markup('(<span class="unbroken">p &lt;= 0.05</span>)')
    """
    return Markup(P_VALUE.sub(r'<span class="unbroken">\g<0></span>', str(escape(text))))


def script_data(data: Any) -> Markup:
    """Return JSON that is safe in a page's script element, whatever its strings contain."""
    packed = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    # Inside <script> only "<" can end the element or begin a comment; JSON may escape it.
    return Markup(packed.replace("<", "\\u003c"))


def short(value: Any) -> float | None:
    """Return a number to four digits for a script; ``None`` for NaN and ``None``.

    >>> short(0.123456), short(float("nan")), short(None)
    (0.1235, None, None)
    """
    number = math.nan if value is None else float(value)
    return float(f"{number:.4g}") if math.isfinite(number) else None


def write_page(file: Path, content: str | bytes) -> Path:
    """Write a page atomically and return its path.

    Raises:
        UserError: if it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return file


def small_picture(image: Image.Image, side: int) -> dict[str, Any]:
    """Shrink an image in place and return it in the form that scripts read.

    Args:
        image: image to shrink, RGB.
        side: upper limit of its longest side, in pixels.

    Returns:
        ``i`` base64 of a WebP, ``w`` and ``h`` its size, ``q`` if its pixels should be visible.
    """
    image.thumbnail((side, side))
    exact = max(image.size) <= GRID  # a drawing of a few pixels; a photograph should stay small
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=exact, quality=QUALITY, method=2)
    code = base64.b64encode(file.getvalue()).decode()
    return {"i": code, "w": image.width, "h": image.height} | ({"q": 1} if exact else {})
