"""The generator of the quickstart corpus: samples meanings and expresses them in English and German."""
