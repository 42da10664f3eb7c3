"""A property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import functools

    cached_property = functools.cached_property
else:

    class cached_property:
        """As `functools.cached_property`, without the lock that it has before Python 3.12.

        That lock is one for all objects of a class. A process that is forked while another thread holds it
        would wait for it forever. Without it, two threads may both compute the value of an object; the last
        remains.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function, self._name = function, ""
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name  # under which an object holds the value, which then hides this property

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value
