"""Attacks on the commands: hundreds of odd uses, each in a separate process, judged by the same rules.

`python tests/attack` runs them all and prints a table; `--help` lists its options.
"""
