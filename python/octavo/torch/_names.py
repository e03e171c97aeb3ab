"""Which modules a pattern means, as in the offline command."""

from __future__ import annotations

from collections.abc import Iterable

from .. import _core
from ._layers import invalid


class Patterns:
    """Names with * and ?, or `re:` and a regular expression that the name's beginning matches.

    The library does the matching: the command and this module agree, and no pattern takes long.
    """

    def __init__(self, patterns: Iterable[str] | None, optional: Iterable[str] = ()) -> None:
        """`optional`: those that need not match."""
        if patterns is not None and not isinstance(patterns, Iterable):
            raise invalid("ignore", f"expected names or patterns, got {patterns!r}")
        self.patterns = [patterns] if isinstance(patterns, str) else list(patterns or ())
        self._used = set(optional)
        for pattern in self.patterns:
            if not isinstance(pattern, str):
                raise invalid("ignore", f"expected names or patterns, got {pattern!r}")
        self._compiled = {pattern: _core.pattern(pattern) for pattern in self.patterns}

    def find(self, name: str) -> str | None:
        """The first pattern that means this name."""
        for pattern in self.patterns:
            if self._compiled[pattern].matches(name):
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
