"""Options: overrides and YAML files, composed into the typed dataclasses of `nmt.config`."""
