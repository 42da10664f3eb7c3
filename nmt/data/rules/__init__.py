"""Rules that drop training pairs, a small class each; `nmt.data.cleaning` has their register."""
