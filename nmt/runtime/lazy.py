"""A property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """As `functools.cached_property`, without the lock that it has before Python 3.12.

    That lock is one for all objects of a class. A process that is forked while another thread holds it would
    wait for it forever. Without it, two threads may both compute the value of an object; the last remains.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self._name = function, ""
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Self:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)
        return value
