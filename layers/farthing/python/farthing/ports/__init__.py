"""The ways out of the agent, as small interfaces. The cloud and the local server implement them."""
