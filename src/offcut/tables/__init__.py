"""Files into tables: CSV, Parquet, NPY, FCS and AnnData, for cytometry and the command line."""
