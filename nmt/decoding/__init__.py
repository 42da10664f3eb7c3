"""Translation with trained models: beam search, forced scoring, and the translator that uses them."""
