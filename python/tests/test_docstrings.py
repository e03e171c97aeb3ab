"""Every function has a docstring with an example, and the examples are right."""

import doctest
import inspect

import numpy as np
import octavo
import pytest
from octavo import _core, _error, _functions, _linear, cuda


@pytest.mark.parametrize("module", [octavo, _functions, _linear, _error, cuda])
def test_examples(module):
    result = doctest.testmod(module, globs={"octavo": octavo, "np": np})
    assert result.attempted > 0
    assert result.failed == 0


def test_examples_of_classes():
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner()
    for cls in (_core.Stream, _core.PackedWeight, _core.Statistics):
        names = {"octavo": octavo, "np": np}
        example = parser.get_doctest(cls.__doc__, names, cls.__name__, None, None)
        assert example.examples
        assert runner.run(example).failed == 0


@pytest.mark.parametrize("name", [n for n in octavo.__all__ if inspect.isfunction(vars(octavo)[n])])
def test_every_function_has_an_example(name):
    assert ">>> octavo." in getattr(octavo, name).__doc__
