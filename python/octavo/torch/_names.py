"""Which modules a pattern means, as in the offline command."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from .._error import Error, ErrorCode


class Patterns:
    """Names with * and ?, or `re:` and a regular expression that the name's beginning matches."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        self._used: set[str] = set()

    def find(self, name: str) -> str | None:
        """The first pattern that means this name."""
        for pattern in self.patterns:
            if pattern.startswith("re:"):
                hit = re.match(pattern[3:], name) is not None
            else:
                hit = fnmatch.fnmatchcase(name, pattern)
            if hit:
                self._used.add(pattern)
                return pattern
        return None

    def check_all_used(self) -> None:
        """A pattern that matches nothing is a mistake."""
        for pattern in self.patterns:
            if pattern not in self._used:
                raise Error(
                    ErrorCode.invalid_problem,
                    f"ignore: expected patterns that match a layer, got '{pattern}', which matches "
                    "none",
                    "ignore",
                )
