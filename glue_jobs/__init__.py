"""The PySpark jobs: pure DataFrame functions. Only their `main()` functions use Glue."""
