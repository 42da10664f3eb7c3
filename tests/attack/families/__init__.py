"""The families of cases, one module each; each module defines `cases()`."""
