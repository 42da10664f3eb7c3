"""The commands: each reads its options, builds what it needs and calls one function."""
