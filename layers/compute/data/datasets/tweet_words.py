"""The words of a tweet as GloVe's vectors have them: lower case, addresses and names replaced."""

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
    """Return the words of `text`; an address becomes `<url>`, a name becomes `<user>`.

    Of all punctuation marks only `!` and `?` are kept.
    """
    plain = html.unescape(text).lower().replace("\u2019", "'")
    return [
        URL if match["url"] else USER if match["user"] else match.group()
        for match in _TOKEN.finditer(plain)
    ]
