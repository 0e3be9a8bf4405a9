"""The ways to walk an input space, one per file; each owns its `distribution()`."""
