"""Rules that drop training pairs, one small class each. Their registry is in `nmt.data.cleaning.cleaner`."""
