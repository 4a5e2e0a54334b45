"""What a deployment costs: measured amounts, times prices of one dated table."""
