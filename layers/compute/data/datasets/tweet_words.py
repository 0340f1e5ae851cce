"""The words of a tweet, as GloVe's vectors have them: lower case, without addresses and names."""

from __future__ import annotations

import html
import re

URL, USER = "<url>", "<user>"

_TOKEN = re.compile(
    r"(?P<url>https?://\S+|www\.\S+)"
    r"|(?P<user>@\w+)"
    # "don't" is "do" and "n't", "it's" is "it" and "'s".
    r"|[^\W_]+?(?=n't\b)|n't\b|'(?:s|m|re|ve|ll|d)\b|[^\W_]+|[!?]"
)


def words_of(text: str) -> list[str]:
    """Split ``text`` into words; an address becomes ``<url>``, a name ``<user>``.

    Of all signs only ``!`` and ``?`` stay.
    """
    plain = html.unescape(text).lower().replace("\u2019", "'")
    return [
        URL if match["url"] else USER if match["user"] else match.group()
        for match in _TOKEN.finditer(plain)
    ]
