"""How Sphinx builds the pages of docs/ and the reference: ``make docs``."""

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
