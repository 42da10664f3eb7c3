"""SentencePiece tokenizers: training, encoding, decoding and subword regularisation."""
