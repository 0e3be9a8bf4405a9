"""What a model believes about inputs nobody collected: its outputs over the whole input space (OmniInput)."""
