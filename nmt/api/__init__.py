"""The Python interface: what `import nmt` offers, on the same functions as the commands."""
