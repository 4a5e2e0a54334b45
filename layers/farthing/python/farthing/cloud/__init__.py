"""Where AWS meets the library: event shapes, API Gateway's connections, wiring. No rules here."""
