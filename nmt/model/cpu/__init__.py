"""Attention on the CPU, and on devices without kernels of their own: padded groups, and cached steps."""
