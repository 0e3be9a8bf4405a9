"""The version, for every package to read."""

VERSION = "0.1.0"
