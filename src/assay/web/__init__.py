"""Pages and services on this machine: people annotate inputs, programs ask a guard."""

from assay.extras import expect_installed

expect_installed("starlette", "uvicorn", "prometheus_client")
