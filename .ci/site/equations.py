"""Equations: `$$ ... $$` becomes MathML, which every browser shows without a script."""

from __future__ import annotations

import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_BLOCK = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its equations as MathML."""
    return _BLOCK.sub(_mathml, markdown)


def _mathml(equation: re.Match[str]) -> str:
    mathml = convert(equation[1], display="block").replace("\n", " ")
    unread = re.search(r"&#x00026;|<mi>\\[a-zA-Z]+|<mtext>\\", mathml)
    if unread is not None:
        raise PluginError(f"an equation cannot be shown as MathML: {equation[1]}")
    return f'<div class="equation">{mathml}</div>\n'
