"""Turns API Gateway and stream events into verb calls, in the cloud and on one machine."""
