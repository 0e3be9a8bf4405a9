"""What monitors are made of: moments, covariances, samples, searches."""
