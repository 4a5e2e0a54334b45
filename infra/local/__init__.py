"""The one-machine runtime: what API Gateway, Lambda and DynamoDB Streams do in the cloud."""
