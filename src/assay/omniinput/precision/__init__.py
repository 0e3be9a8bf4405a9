"""How right a model is where it is sure, over all inputs (OmniInput, section 2.3)."""
