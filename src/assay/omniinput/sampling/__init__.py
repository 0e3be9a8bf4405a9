"""How many of all inputs a model maps to each output (OmniInput, section 2)."""
