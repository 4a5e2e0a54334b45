"""What a deployment costs: measured amounts, multiplied by the prices of one dated table."""
