"""Rules that drop training pairs, a small class each; `nmt.data.cleaning.cleaner` has their register."""
