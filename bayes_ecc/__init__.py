"""Which language model is good at what, and how sure that is."""
