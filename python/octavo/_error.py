"""What is raised when the library refuses something."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """Why something was refused. Equal to its number and to its name."""

    unsupported = 1
    invalid_problem = 2
    misaligned_operand = 3
    workspace_too_small = 4
    buffer_too_small = 5
    backend = 6

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.name == other
        return int.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __str__(self) -> str:
        return self.name


class Error(ValueError):
    """Bad input, refused before a byte of output was written.

    `code` says what kind, `argument` names what was wrong, and `str(error)` says what was expected
    and what came.

    >>> try:
    ...     octavo.quantize(np.zeros(3, np.float32), 0.0)
    ... except octavo.Error as error:
    ...     print(error.code, error.argument)
    invalid_problem scale
    """

    def __init__(self, code: int, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.code = ErrorCode(code)
        self.argument = argument

    def __reduce__(self) -> tuple[type[Error], tuple[int, str, str]]:
        return type(self), (int(self.code), str(self), self.argument)
