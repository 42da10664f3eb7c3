"""The data pipeline, from raw text to flat batches of ids: corpora, cleaning, tokenizer, store, batching."""
