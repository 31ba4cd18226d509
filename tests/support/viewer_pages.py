"""Pages of the viewer: the data in them, and that they need nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from typing import Any

from graphc.viewer.page import SCRIPTS, asset

DATA = re.compile(r'<script type="application/octet-stream" id="data">([^<]*)</script>')


def data_of(text: str) -> Any:
    """What the script of a page is given."""
    found = DATA.search(text)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def assert_alone(text: str, scripts: Sequence[str] = SCRIPTS) -> None:
    """Nothing in a page leads anywhere else, or runs that is not the page's own."""
    assert "://" not in text.replace("http://www.w3.org", "")
    assert not re.search(r"<(link|iframe|img|object|embed|base)\b|\bsrc\s*=|@import|url\(", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", own(text)
    )
    assert text.count("<script") == text.count("</script>") == 1 + len(scripts)


def own(text: str) -> str:
    """The text without the library."""
    return text.replace(asset("dagre.min.js"), "")
