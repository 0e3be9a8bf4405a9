"""Samplers, one per file. Each is a run (see `checkpoint.Run`) that owns its `distribution()`.

`tempering` works for any model, `multicanonical` is an independent check of it, `importance` is for language
models, and `importance_then_tempering` combines the two where importance sampling is weak.
"""
