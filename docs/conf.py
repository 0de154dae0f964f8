"""How Sphinx builds the pages of docs/ and the reference: ``make docs``."""

from typing import Any

import lightning.pytorch as pl

import cfaug

project = "cfaug"
author = "the cfaug authors"
version = release = cfaug.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_show_copyright = False
html_theme = "furo"
html_static_path = html_css_files = ["site.css"]
html_title = f"cfaug {release}"
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
napoleon_google_docstring = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autosummary_generate = True
autosummary_imported_members = True
nitpicky = False
exclude_patterns = ["_build"]


def setup(app: Any) -> None:
    """Leave Lightning's own hundreds of members out of the pages of its subclasses."""
    lightnings = {*dir(pl.LightningModule), *dir(pl.LightningDataModule)}
    app.connect("autodoc-skip-member", lambda _, __, name, *___: name in lightnings or None)
