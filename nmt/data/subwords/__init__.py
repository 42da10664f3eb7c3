"""SentencePiece: text to ids and back, how the pieces are learnt, and subword regularisation."""
