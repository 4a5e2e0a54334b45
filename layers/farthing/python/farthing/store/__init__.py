"""Farthing's stored data, behind one small table port. No module depends on the messages of a
protocol."""
