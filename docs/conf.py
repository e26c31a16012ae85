"""How the documentation is built: offline, every warning an error (`make docs`)."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "bayes_ecc"
author = "The bayes_ecc authors"
copyright = author  # noqa: A001 - the name Sphinx knows
version = release = version_of("bayes-ecc")

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_parser",
    "articles",
    "commands",
    "mathml",
    "reference",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # the sections Parameters and Returns say the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # members follow the class, with all they say
default_role = "py:obj"

html_theme = "alabaster"
html_title = f"bayes_ecc {version}"
html_static_path = ["_static"]
html_css_files = ["bayes_ecc.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "description": "Which language model is good at what, and how sure that is.",
    "fixed_sidebar": True,
    "page_width": "64rem",
    "sidebar_width": "15rem",
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
