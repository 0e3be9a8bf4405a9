"""Which inputs people judge, what they said, and how far they agree."""
