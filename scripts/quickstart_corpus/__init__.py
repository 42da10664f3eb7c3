"""The bundled English-German quickstart corpus: meanings, and two grammars that put them into words."""
