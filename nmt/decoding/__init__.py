"""From a trained model to text: beam search and the translator around it."""
