"""Composes overrides and YAML files into the typed dataclasses of `nmt.config`."""
