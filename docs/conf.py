"""How Sphinx builds these pages: ``sphinx-build -W -c docs . build/docs`` from the root of the repository."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from lcstore.version import __version__

project = "lcstore"
author = "The lcstore authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "numpydoc"]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "benchmarks/README.md", "docs/**.md"]
exclude_patterns = ["build", "dist", ".venv", "**/.*"]

html_theme = "alabaster"
html_title = f"lcstore {version}"
html_theme_options = {"page_width": "72rem", "sidebar_width": "15rem", "fixed_sidebar": True}

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 90
numpydoc_show_class_members = False  # they are listed by autodoc
default_role = "code"
# What is documented of integrations does not need their libraries; Keras would need a backend, too.
_LIBRARIES = ("accelerate", "safetensors", "torch", "transformers")
autodoc_mock_imports = ["keras", *(name for name in _LIBRARIES if find_spec(name) is None)]
# Attributes of one name in several classes are looked up by it, and blocks in languages that nobody colours
# are shown as they are: neither is a mistake.
suppress_warnings = ["ref.python", "misc.highlighting_failure"]
