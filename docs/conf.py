"""Sphinx configuration."""

project = "pebbling"
copyright = "the pebbling authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "pebbling"
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
exclude_patterns = ["_build"]
nitpicky = False
