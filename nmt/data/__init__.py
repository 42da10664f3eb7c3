"""From raw text to flat batches of ids: corpus, cleaning, tokenizer, store, batching."""
