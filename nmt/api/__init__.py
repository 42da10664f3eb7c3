"""The Python interface of `import nmt`; it calls the same functions as the commands."""
