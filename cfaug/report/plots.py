"""What every figure is drawn with: matplotlib, in the colours of ``templates/theme.css``.

A figure is drawn once, in the light theme's colours. On a page it is SVG whose colours are the
theme's variables, so that it turns dark with the page, whose text is text, and which has no ids, so
that any number of figures can stand on a page. Beside a table it is a PDF with its fonts embedded.
What names in a figure hold is shown letter by letter: neither markup nor mathematics is read.

matplotlib takes a third of a second to import: only what draws imports it.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup

from cfaug.files import write_file
from cfaug.report.labels import printable, wrap_text
from cfaug.report.numbers import Measure
from cfaug.report.page import TEMPLATES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec
    from matplotlib.text import Text

THEME = (TEMPLATES / "theme.css").read_text(encoding="utf-8")

COLOURS = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", THEME.partition("}")[0]))
"""{variable of the theme: its value in the light}."""

PAPER, INK, QUIET, RULE, DOT, ACCENT = (
    COLOURS[name] for name in ("paper", "ink", "quiet", "rule", "dot", "accent")
)
SERIES = (ACCENT, DOT, COLOURS["blue"], COLOURS["green"], COLOURS["violet"])
"""Colours of series; further ones are as the second."""

WIDTH = 520
"""Of a figure, in pixels of a page and points of a PDF."""

LABEL, LINE = 34, 14
"""Letters of a label's line at most, and pixels from one line to the next."""

TITLE = 70
"""Letters of a line of a title at most."""

ROWS = ("axes fraction", "data")
"""Coordinates of what stands beside a row."""

ROOM = 0.06
"""Part of the span of the values that an axis leaves free at either end."""

TEXT, SMALL = 12, 11.5
"""Sizes of letters."""

STYLE: Any = {
    "figure.dpi": 72,  # a pixel is a point
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 6 / 72,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, and is wider than a page's fonts
    "font.size": TEXT,
    "text.color": INK,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "cfaug",
    "pdf.fonttype": 42,
}
SVG_FONT = "system-ui, sans-serif"

GEOMETRY = ("d", "x", "y", "transform")

NOTE = "note: "
"""Begins the group id of an artist with a note, which becomes a ``<title>``."""

Colour = str | tuple[str, float]
"""A colour, or one with its opacity."""

Band = tuple[float, float, float]
"""What chance gives: low end, mean and high end."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of this module, whatever the user's ``matplotlibrc`` says; a decorator.

    A name may hold letters that matplotlib's font lacks. A page shows them in the reader's fonts
    and a PDF shows boxes, without a warning for each.
    """
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


@dataclass(frozen=True)
class Drawing:
    """A figure, laid out; templates show it as SVG.

    Attributes:
        figure: matplotlib's, drawn under :func:`style`.
        label: what screen readers call it.
    """

    figure: Figure
    label: str

    @classmethod
    def of(cls, axes: Axes, label: str) -> Drawing:
        """Lay the figure of some axes out once, so that every format shows the same layout."""
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for title in (axes.xaxis.label, axes.title):
            title.set_x(title.get_position()[0] + overhang(title, figure) / axes.bbox.width)
        return cls(figure, printable(label))

    def __html__(self) -> str:
        return self.svg

    @cached_property
    def svg(self) -> Markup:
        """The figure as an element of a page."""
        return Markup(ElementTree.tostring(self._tree(), encoding="unicode"))

    def svg_file(self) -> str:
        """Return the figure as a file that stands by itself and follows the reader's theme."""
        tree = self._tree()
        tree.set("xmlns", "http://www.w3.org/2000/svg")
        theme = ElementTree.Element("style")
        theme.text = f"\n{THEME}svg {{ background: var(--paper); }}\n"
        tree.insert(0, theme)
        return ElementTree.tostring(tree, encoding="unicode") + "\n"

    @style()
    def pdf(self) -> bytes:
        """Return the figure as a PDF of one page, whose bytes tell nothing of when or where."""
        file = io.BytesIO()
        self.figure.savefig(
            file, format="pdf", metadata={"CreationDate": None, "Title": self.label}
        )
        return file.getvalue()

    @style()
    def _tree(self) -> ElementTree.Element:
        file = io.StringIO()
        none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        self.figure.savefig(file, format="svg", metadata=none)
        root = ElementTree.fromstring(file.getvalue())
        markers = {
            f"#{path.get('id')}": path.get("d", "") for path in root.iterfind(".//{*}defs/{*}path")
        }
        (tree,) = _clean(root, markers)
        tree.attrib = {
            "viewBox": root.get("viewBox", ""), "role": "img", "aria-label": self.label,
            "stroke-linejoin": "round",
        }  # fmt: skip
        return tree


def write_pdfs(drawings: Sequence[Drawing], folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>-1.pdf`` and so on, in the order of the page; return the paths.

    Files of figures that an earlier version of the page had more than this one are deleted.
    """
    files = [folder / f"{stem}-{number}.pdf" for number in range(1, len(drawings) + 1)]
    for file, drawing in zip(files, drawings, strict=True):
        write_file(file, drawing.pdf())
    number = len(files) + 1
    while (left := folder / f"{stem}-{number}.pdf").exists():
        left.unlink()
        number += 1
    return files


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure of a size in pixels, which lays itself out."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), frameon=False)


def add_axes(figure: Figure, place: SubplotSpec | None = None) -> Axes:
    """Add bare axes to a figure, in all of it or in a place of its grid."""
    axes = figure.add_subplot(place or 111, frameon=False)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=QUIET, pad=6)
    axes.set_axisbelow(True)
    return axes


def new_axes(height: float) -> Axes:
    """Return bare axes on a figure of a height in pixels."""
    return add_axes(new_figure(height))


def value_axis(
    axes: Axes, which: str, limits: tuple[float, float], title: str = "", factor: float = 1
) -> None:
    """Give an axis its limits, round ticks with lines across, and a title.

    Args:
        axes: to change.
        which: ``x`` or ``y``.
        limits: the lowest and the highest value; all that is drawn lies between them.
        title: of the axis.
        factor: what values are multiplied by when they are printed.
    """
    from matplotlib.ticker import MaxNLocator

    axes.set(**{f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _: f"{factor * value:g}")
    axis.grid(color=RULE, linewidth=1)
    axis.set_label_text(wrapped(title), color=QUIET, fontsize=SMALL)


def around(values: Sequence[float]) -> tuple[float, float]:
    """Return limits with a little room around values.

    >>> around([0.0, 1.0]), around([2.0])
    ((-0.06, 1.06), (1.95, 2.05))
    """
    low, high = min(values), max(values)
    room = ROOM * (high - low) or 0.05
    return low - room, high + room


def overhang(text: Text, area: Figure | Axes) -> float:
    """Return by how many pixels to move a text to the right that it stays inside an area."""
    place, bounds = text.get_window_extent(), area.get_window_extent()
    return max(0.0, bounds.x0 - place.x0) or min(0.0, bounds.x1 - place.x1)


def wrapped(text: str) -> str:
    """Return the title of an axis or of a figure in lines."""
    return "\n".join(wrap_text(text, TITLE))


def lines_of(names: Sequence[str], width: int = LABEL) -> int:
    """Return how many lines the longest of some labels has."""
    return max(len(wrap_text(name, width)) for name in names)


def write(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float] = (0, 0),
    *,
    coords: str | tuple[str, str] = "data",
    width: int = LABEL,
    **look: Any,
) -> None:
    """Write a text literally, in lines whose block has its middle at a height.

    Every line is a text of its own: matplotlib aligns those of one text by the widths they have in
    its own font, which are not those of a page.

    Args:
        axes: to write on.
        text: of any letters; control characters are left out.
        place: x and y in ``coords``, matplotlib's ``xycoords``.
        offset: pixels to the right of it and above it.
        coords: of the place.
        width: letters of a line at most.
        look: properties of matplotlib's ``Text``.
    """
    lines = wrap_text(text, width)
    for i, line in enumerate(lines):
        up = offset[1] + LINE * ((len(lines) - 1) / 2 - i)
        axes.annotate(
            line, place, (offset[0], up), xycoords=coords, textcoords="offset points",
            **{"va": "center", **look},
        )  # fmt: skip


def name_rows(
    axes: Axes, names: Mapping[str, float], bottom: float, accent: Collection[str] = ()
) -> None:
    """Name rows left of the axes, whose y becomes pixels from the top.

    Args:
        axes: to change.
        names: {row: its middle}.
        bottom: pixels of all rows.
        accent: the rows named in the accent colour.
    """
    axes.set_ylim(bottom, 0)
    axes.set_yticks([])
    for name, y in names.items():
        look = {"color": ACCENT, "fontweight": "bold"} if name in accent else {}
        write(axes, name, (0, y), (-10, 0), coords=ROWS, ha="right", **look)


def name_series(axes: Axes, names: Mapping[str, Colour], swatches: bool = False) -> None:
    """Write the names of series above the axes, each in a line and colour of its own.

    Args:
        axes: to change.
        names: {name: colour}.
        swatches: draw a square of the colour before the name, which is quiet.
    """
    for number, (name, colour) in enumerate(names.items()):
        above = 14 + 18 * (len(names) - 1 - number)
        look: dict[str, Any] = {"color": QUIET if swatches else colour}
        if not swatches and colour != DOT:
            look["fontweight"] = "bold"
        if swatches:
            write(axes, "■", (0, 1), (0, above), coords="axes fraction", color=colour)
        first = wrap_text(name, TITLE)[0]
        place: dict[str, Any] = {"coords": "axes fraction", "width": TITLE}
        write(axes, first, (0, 1), (16 * swatches, above), **place, **look)


def note(artist: Artist, text: str) -> None:
    """Let a page show a text where an artist is pointed at."""
    artist.set_gid(NOTE + printable(text))


def dot(axes: Axes, x: float, y: float, text: str, colour: str = DOT) -> None:
    """Draw a point with its note."""
    (drawn,) = axes.plot(x, y, "o", markersize=7.2, markeredgewidth=0, color=colour, alpha=0.75)
    note(drawn, text)


def bar(
    axes: Axes, ends: tuple[float, float], y: float, height: float, text: str = "", **look: Any
) -> None:
    """Draw a rectangle between two values around a y, with a note if there is a text."""
    (drawn,) = axes.barh(y, ends[1] - ends[0], height, left=ends[0], **look)
    if text:
        note(drawn, text)


def draw_chance(axes: Axes, band: Band, measure: Measure, y: float, height: float) -> None:
    """Draw what chance gives behind a row: a band, and its mean as a line.

    Args:
        axes: whose x are the values.
        band: low end, mean and high end.
        measure: how values are printed.
        y: the middle of the row.
        height: of the band.
    """
    low, mean, high = band
    bar(axes, (low, high), y, height, chance_text(band, measure), color=QUIET, alpha=0.16)
    rows = [y - height / 2, y + height / 2]
    axes.plot([mean, mean], rows, color=QUIET, linewidth=1.4, linestyle=(0, (3, 2)))


def chance_text(band: Band, measure: Measure) -> str:
    """Return what chance gives in words."""
    low, mean, high = (measure.text(one, 1) for one in band)
    return f"by chance {mean} ({low} to {high}) {measure.sign}".strip()


def _clean(node: ElementTree.Element, markers: Mapping[str, str]) -> Iterator[ElementTree.Element]:
    """Yield what a page needs of matplotlib's SVG: no ids and what refers to them, short numbers.

    Clipping goes with the ids: axes reach around all that they show. All markers are circles.

    Args:
        node: of matplotlib's SVG.
        markers: {reference: path} of its markers.
    """
    tag = node.tag.rpartition("}")[2]
    if tag == "defs":
        return
    children = [clean for child in node for clean in _clean(child, markers)]
    told = node.get("id", "").partition(NOTE)[2]
    if tag == "g" and not told:
        yield from children
        return
    found = ElementTree.Element(tag)
    found.text = node.text if tag == "text" else None
    if told:
        ElementTree.SubElement(found, "title").text = told
    kept = {name: value for name, value in node.items() if name in GEOMETRY}
    if tag == "use":
        path = markers[node.get("{http://www.w3.org/1999/xlink}href", "")].split()
        if path[:2] != ["M", "0"]:
            raise ValueError("of what matplotlib draws by reference a page shows only circles")
        found.tag, kept = "circle", {"cx": kept["x"], "cy": kept["y"], "r": path[2]}
    found.attrib = {name: re.sub(r"\d+\.\d+", _short, value) for name, value in kept.items()}
    found.set("style", _themed(node.get("style", "")))
    found.extend(children)
    yield found


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _themed(css: str) -> str:
    """Return a style with the theme's variables for its colours, and the page's font."""
    names = {value: f"var(--{name})" for name, value in COLOURS.items()}
    css = re.sub(r"#[0-9a-f]{6}", lambda found: names.get(found[0], found[0]), css)
    return css.replace("'DejaVu Sans'", SVG_FONT)
