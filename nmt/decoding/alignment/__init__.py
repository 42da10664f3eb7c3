"""Word alignments from attention: the choice of heads, and the links of words."""
