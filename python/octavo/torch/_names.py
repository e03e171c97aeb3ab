"""Which modules a pattern means, as in the offline command."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from ._layers import invalid


class Patterns:
    """Names with * and ?, or `re:` and a regular expression that the name's beginning matches."""

    def __init__(self, patterns: Iterable[str] | None) -> None:
        if patterns is not None and not isinstance(patterns, Iterable):
            raise invalid("ignore", f"expected names or patterns, got {patterns!r}")
        self.patterns = [patterns] if isinstance(patterns, str) else list(patterns or ())
        self._used: set[str] = set()
        self._expressions: dict[str, re.Pattern[str]] = {}
        for pattern in self.patterns:
            if not isinstance(pattern, str):
                raise invalid("ignore", f"expected names or patterns, got {pattern!r}")
            if pattern.startswith("re:"):
                try:
                    self._expressions[pattern] = re.compile(pattern[3:])
                except re.error as e:
                    raise invalid(
                        "ignore", f"expected a regular expression, got '{pattern}': {e}"
                    ) from None

    def find(self, name: str) -> str | None:
        """The first pattern that means this name."""
        for pattern in self.patterns:
            if pattern in self._expressions:
                hit = self._expressions[pattern].match(name) is not None
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
                raise invalid(
                    "ignore",
                    f"expected patterns that match a layer, got '{pattern}', which matches none",
                )
