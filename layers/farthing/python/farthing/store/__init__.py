"""What Farthing keeps, behind one small table port. Knows nothing of protocols' messages."""
