"""What the official Python client offers, found by looking at it, so that nothing new can be missed."""

import inspect

import createos
from createos import client, instance, services
from createos._streams import BinaryStream, CommandStream

#: Classes that a user holds in hand. Services are found by their module.
HELD = [client.Client, instance.SandboxInstance, BinaryStream, CommandStream]


def public(cls):
    """Names of the class's own public methods and properties, inherited ones too."""
    for name, member in inspect.getmembers(cls):
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            yield f"{cls.__name__}.{name}"


def calls():
    """Every call that there is."""
    found = set()
    for cls in HELD:
        found |= set(public(cls))
    for _, cls in inspect.getmembers(services, inspect.isclass):
        if cls.__module__ == services.__name__:
            found |= set(public(cls))
    for name in createos.__all__ if hasattr(createos, "__all__") else dir(createos):
        member = getattr(createos, name)
        if inspect.isfunction(member) and not name.startswith("_"):
            found.add(name)
    return found
