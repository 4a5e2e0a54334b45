"""The code that only AWS needs: Powertools metrics, @connections, calls of functions, secrets."""
