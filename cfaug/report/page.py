"""Building blocks of pages and tables: templates, small pictures, numbers as people read them."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.outputs import write_output
from cfaug.core.plugins import PACKAGE, plugin_files
from cfaug.core.types import Better

TEMPLATES = PACKAGE / "report" / "templates"
"""The common style, and the parts and pages that belong to no capability; a capability, or another
folder of the package, has pages of its own in its ``templates/``."""
GRID = 128
"""A picture with sides of at most this is a drawing whose pixels should be visible."""
P_VALUE = re.compile(r"\bp (?:=|&lt;=|&lt;) [\d.]*\d(?:e-\d+)?|[\d.]+e-\d+")
"""A p-value with its name, escaped, or a number with an exponent."""


def render(template: str, **content: Any) -> str:
    """Return a page: a template with the common style; every string in it is escaped.

    Args:
        template: the name of a file in the ``templates/`` of any folder of the package.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(
            [TEMPLATES, *sorted(PACKAGE.glob("*/templates")), *plugin_files("templates")]
        ),
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


def write_page(file: Path, content: str | bytes, kind: str = "") -> Path:
    """Write a page atomically and return its path.

    Args:
        kind: the name of what the page is, if a user named its file; "" for one with a fixed name.

    Raises:
        UserError: if another file than an earlier page of this kind is there.
    """
    try:
        encoded = content.encode() if isinstance(content, str) else content
        write_output(file, encoded, kind or file.name)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return file


def small_picture(image: Image.Image, side: int) -> dict[str, Any]:
    """Shrink an image in place and return it in the form that scripts read.

    Args:
        side: upper limit of its longest side, in pixels.

    Returns:
        ``i`` base64 of a WebP, ``w`` and ``h`` its size, ``q`` if its pixels should be visible.
    """
    image.thumbnail((side, side))
    exact = max(image.size) <= GRID  # a drawing of a few pixels; a photograph should stay small
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=exact, quality=80, method=2)
    code = base64.b64encode(file.getvalue()).decode()
    return {"i": code, "w": image.width, "h": image.height} | ({"q": 1} if exact else {})


# Numbers as people read them: percent, points, p-values, and values in any other unit.

DASH = "–"
"""Printed where there is no number."""
FRACTION = "fraction"
"""The unit of a share of queries; tables show percent."""


def percent(value: float, digits: int = 2) -> str:
    """Return a fraction as percent without the sign; a dash for ``nan``.

    >>> percent(0.78283), percent(float("nan"))
    ('78.28', '–')
    """
    return DASH if math.isnan(value) else f"{100 * value:.{digits}f}"


def points(value: float, digits: int = 1) -> str:
    """Return a difference of fractions in percentage points with its sign; a dash for ``nan``.

    >>> points(0.0312), points(-0.5, 2)
    ('+3.1', '-50.00')
    """
    return DASH if math.isnan(value) else f"{100 * value:+.{digits}f}"


def span_text(text: Callable[[float], str], low: float, high: float, missing: str = "n/a") -> str:
    """Return two ends of an interval as ``text`` prints them; ``missing`` if they are ``nan``."""
    return missing if math.isnan(low) else f"{text(low)} to {text(high)}"


def p_text(p: float) -> str:
    """Return a p-value to two significant digits; a dash for ``nan``.

    >>> p_text(0.0312), p_text(0.00002), p_text(0.5)
    ('0.031', '2.0e-5', '0.50')
    """
    if math.isnan(p):
        return DASH
    if p < 0.001:
        return f"{p:.1e}".replace("e-0", "e-")
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


@dataclass(frozen=True)
class Measure:
    """The unit (``core.types.Outcome``) and direction of a metric, and so how values are printed.

    Fractions are printed as percent, their differences in points; values in any other unit as they
    are, to four significant digits.
    """

    unit: str = FRACTION
    better: Better = "higher"

    @property
    def is_fraction(self) -> bool:
        """Whether values are printed as percent."""
        return self.unit == FRACTION

    @property
    def factor(self) -> int:
        """The factor by which a value is multiplied when it is printed or drawn."""
        return 100 if self.is_fraction else 1

    @property
    def sign(self) -> str:
        """The unit after a number: "%", or the unit's name."""
        return "%" if self.is_fraction else self.unit

    def text(self, value: float, digits: int = 2) -> str:
        """Return a value as printed; ``digits`` are the decimals of a percentage.

        >>> Measure().text(0.78283), Measure("nats", "lower").text(1234.567)
        ('78.28', '1235')
        """
        if self.is_fraction or math.isnan(value):
            return percent(value, digits)
        return f"{value:.4g}"

    def spread(self, sd: float) -> str:
        """Return a standard deviation as printed.

        >>> Measure().spread(0.0123), Measure("nats").spread(0.0123)
        ('1.2', '0.012')
        """
        return percent(sd, 1) if self.is_fraction or math.isnan(sd) else f"{sd:.2g}"

    def difference(self, value: float, digits: int = 1) -> str:
        """Return a signed difference as printed, without its unit.

        >>> Measure().difference(0.0312), Measure("nats", "lower").difference(-0.0312)
        ('+3.1', '-0.0312')
        """
        if self.is_fraction or math.isnan(value):
            return points(value, digits)
        return f"{value:+.3g}"

    def amount(self, value: float) -> str:
        """Return a signed difference with its unit, for a sentence.

        >>> Measure().amount(0.0312), Measure("nats").amount(0.5)
        ('+3.1 points', '+0.5 nats')
        """
        return f"{self.difference(value)} {'points' if self.is_fraction else self.unit}"

    def gain(self, difference: float) -> float:
        """Return the improvement by the first of two values, given first minus second.

        >>> Measure().gain(-0.5), Measure(better="lower").gain(-0.5)
        (-0.5, 0.5)
        """
        return difference if self.better == "higher" else -difference

    def best(self, values: list[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.better == "higher" else min(values)

    def header(self, metric: str) -> str:
        """Return the header of a column: the metric, with its unit and direction if needed.

        >>> Measure().header("acc1"), Measure("nats", "lower").header("loss")
        ('acc1', 'loss (nats, lower is better)')
        """
        notes = [] if self.is_fraction else [self.unit]
        notes += [] if self.better == "higher" else ["lower is better"]
        return f"{metric} ({', '.join(notes)})" if notes else metric


PERCENT = Measure()
"""The measure of fractions in which higher is better."""
