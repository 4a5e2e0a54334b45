"""Infrastructure: the CDK app, and the runtime for one machine."""
