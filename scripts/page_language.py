"""The language of the site's pages in Korean: a hook of mkdocs, which mkdocs.yml names.

Browsers choose fonts, hyphens and voices by it. The theme has one language for all pages.
"""

from __future__ import annotations

import re
from typing import Any


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Returns the HTML of a page, marked as Korean if its title is."""
    return output.replace('<html lang="en"', '<html lang="ko"', 1) if _HANGUL.search(page.title) else output


_HANGUL = re.compile("[가-힣]")
