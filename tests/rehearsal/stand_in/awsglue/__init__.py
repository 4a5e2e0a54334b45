"""As much of Glue's own library as the jobs use, on a Spark that runs here."""
