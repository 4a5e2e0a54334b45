"""The PySpark jobs: pure DataFrame functions, and `main()` alone knows of Glue."""
