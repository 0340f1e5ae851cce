"""Equations: `$$ ... $$` and `$ ... $` become MathML, which browsers show without a script."""

from __future__ import annotations

import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_NORM = "&#x02016;"  # browsers would stretch it to the height of the line
_CODE = r"(?P<code>^(```|~~~).*?^\2|`[^`\n]*`)"
_BLOCK = r"^\$\$\n(?P<block>.*?)\n\$\$$"
_INLINE = r"(?<![\w$])\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$(?![\w$])"
_EQUATION = re.compile(f"{_CODE}|{_BLOCK}|{_INLINE}", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its equations as MathML."""
    return _EQUATION.sub(_shown, markdown)


def _shown(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return found["code"]
    if found["block"] is not None:
        return f'<div class="equation">{_mathml(found["block"], "block")}</div>\n'
    # A line that begins with <math> would be a block of its own.
    return f'<span class="math">{_mathml(found["inline"], "inline")}</span>'


def _mathml(equation: str, display: str) -> str:
    mathml = convert(equation, display=display).replace("\n", " ")
    unread = re.search(r"&(#x00026;)?<|<mi>\\[a-zA-Z]+|<mtext>\\", mathml)
    if unread is not None:
        raise PluginError(f"an equation cannot be shown as MathML: {equation}")
    return mathml.replace(f"<mo>{_NORM}</mo>", f'<mo stretchy="false">{_NORM}</mo>')
