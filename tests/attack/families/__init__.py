"""The families of cases, one module each; a module gives `cases()`."""
